"""Errors as clients get them: a status, and a sentence in OpenAI's form."""

import re
from collections.abc import Sequence
from typing import Any

from starlette.responses import JSONResponse

from didlm.serve.wire import Problem, Refusal

LONGEST = 400  # characters of a sentence: some of them quote what was sent
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param


def refusal(status: int, message: str, param: str | None = None) -> JSONResponse:
    """The answer."""
    return JSONResponse(problem(status, message, param).model_dump(), status, _headers(status))


def problem(status: int, message: str, param: str | None = None) -> Refusal:
    """What it says."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return Refusal(error=Problem(message=shown(message), type=kind, param=param, code=str(status)))


def shown(message: str) -> str:
    """A sentence that can be sent: not too long, and nothing in it that cannot be encoded."""
    message = message.encode(errors="replace").decode()
    return message if len(message) <= LONGEST else message[: LONGEST - 1] + "\u2026"


def sentence(errors: Sequence[Any]) -> tuple[str, str | None]:
    """What is wrong with a request by its description, and with which part of it."""
    # Of several kinds that were expected, one that comes close says more than the others.
    first = next((error for error in errors if not error["type"].endswith("_type")), errors[0])
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {first['ctx']['error']}", None
    place = [str(part) for part in first["loc"] if part != "body"]
    # Where one of several kinds was expected, their names are in the place too.
    names = [part for part in place if re.fullmatch(r"[a-z_]+|\d+", part)][:2]
    name = ".".join(names)[:80]
    if first["type"] == "extra_forbidden":
        return f"there is no field '{place[-1][:80]}'", None
    if first["type"] == "missing":
        return (f"'{name}' is missing" if name else "the request has no body"), name or None
    if not name:
        return "the body is not a JSON object", None
    said = first["msg"][:1].lower() + first["msg"][1:]
    return f"'{name}': {said}", name


def unreadable(error: BaseException | None) -> str:
    """Why a body could not be read as JSON, where its parser has not said where."""
    if isinstance(error, UnicodeDecodeError):
        return "the body is not UTF-8"
    if isinstance(error, RecursionError):
        return "the body is not a request: it is nested too deeply"
    return "the body cannot be read as JSON"


def _headers(status: int) -> dict[str, str]:
    headers = {
        401: {"www-authenticate": "Bearer"},
        408: {"connection": "close"},  # the rest of the body may still come
        413: {"connection": "close"},
        429: {"retry-after": "1"},
    }
    return headers.get(status, {})
