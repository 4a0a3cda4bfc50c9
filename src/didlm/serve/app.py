"""The service: which address does what. FastAPI is imported here and in what this imports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

import didlm
from didlm.pretrained import Model
from didlm.serve import wire
from didlm.serve.engine import Engine
from didlm.serve.gate import Gate
from didlm.serve.limits import Limits
from didlm.serve.metrics import Metrics
from didlm.serve.page import page_files
from didlm.serve.refusals import Refused, refusal, sentence, unreadable
from didlm.serve.service import Service

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": wire.Refusal, "description": what}
    for status, what in {
        400: "The request cannot be done; the message says why.",
        401: "The token is missing.",
        404: "There is no such model.",
        408: "The request did not come whole in time.",
        413: "The request is too large.",
        429: "Too many requests are waiting.",
        503: "The request took too long, or the service is shutting down.",
    }.items()
}


def create_app(
    model: Model,
    name: str,
    limits: Limits | None = None,
    token: str | None = None,
    loopback: bool = True,
) -> FastAPI:
    """The application over one model.

    Args:
        model: that answers.
        name: by which clients know it.
        limits: on what is asked.
        token: that clients must send; None if anybody may ask.
        loopback: whether it is to be reached from this machine only.
    """
    limits, metrics = limits or Limits(), Metrics()
    engine = Engine(model, limits, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await asyncio.to_thread(engine.stop)

    app = FastAPI(
        title="didlm",
        version=didlm.__version__,
        description="A deletion-insertion diffusion language model.",
        lifespan=lifespan,
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.engine, app.state.metrics = engine, metrics
    app.add_middleware(Gate, limits=limits, metrics=metrics, token=token, names=loopback)
    _add_errors(app)
    _add_pages(app, engine)
    _add_api(app, Service(engine, name))
    return app


def _add_api(app: FastAPI, service: Service) -> None:
    for path, answer, kind in (
        ("/v1/completions", service.completions, wire.Completion),
        ("/v1/infill", service.infill, wire.Infilling),
        ("/v1/score", service.score, wire.Scored),
        ("/v1/gaps", service.gaps, wire.Gaps),
    ):
        app.add_api_route(path, answer, methods=["POST"], response_model=kind, responses=_REFUSALS)
    app.post("/v1/animation", response_class=Response, responses=_REFUSALS)(service.animation)

    @app.get("/v1/models")
    async def models() -> wire.Models:
        """Name the one model there is."""
        return wire.Models(data=[wire.OneModel(id=service.name, defaults=service.model.defaults)])


def _add_pages(app: FastAPI, engine: Engine) -> None:
    for path, (content, headers) in page_files().items():

        async def page(content: bytes = content, headers: dict[str, str] = headers) -> Response:
            return Response(content, headers=headers)

        app.add_api_route(path, page, include_in_schema=False, response_class=Response)

    @app.get("/healthz", responses={503: {"model": wire.Refusal}})
    async def health() -> dict[str, str]:
        """Say whether requests are answered."""
        if not engine.alive:
            raise Refused(503, "the engine has stopped")
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Count, for Prometheus."""
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return PlainTextResponse(engine.metrics.text(), media_type=kind)


def _add_errors(app: FastAPI) -> None:
    async def refused(http: Request, error: Refused) -> JSONResponse:
        return refusal(error.status, error.message, error.param)

    async def invalid(http: Request, error: RequestValidationError) -> JSONResponse:
        # Only this kind: a page from elsewhere cannot make a browser send it unasked.
        if "json" not in http.headers.get("content-type", ""):
            return refusal(400, "the request must be JSON, sent as application/json")
        return refusal(400, *sentence(error.errors()))

    async def wrong(http: Request, error: ValueError) -> JSONResponse:
        return refusal(400, str(error))

    async def other(http: Request, error: HTTPException) -> JSONResponse:
        said = {
            400: unreadable(error.__cause__),  # all that is not found out by us
            404: "there is nothing at this address",
            405: "this address is not to be asked in this way",
        }
        message = said.get(error.status_code, str(error.detail))
        response = refusal(error.status_code, message)
        response.headers.update(error.headers or {})
        return response

    app.exception_handler(Refused)(refused)
    app.exception_handler(RequestValidationError)(invalid)
    app.exception_handler(ValueError)(wrong)
    app.exception_handler(HTTPException)(other)
