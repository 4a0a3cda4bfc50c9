"""What `didlm serve` does: load a model, listen, and drain when asked to stop."""

import logging
import os
import signal
import socket
import sys
from pathlib import Path

from didlm.pretrained import load
from didlm.serve.limits import Limits
from didlm.serve.loopback import is_loopback

INSTALL = "pip install 'didlm[serve]'"
TOKEN = "DIDLM_TOKEN"  # in the environment: a command line can be read by others


def serve_for_user(
    model: str, host: str, port: int, device: str, dtype: str, limits: Limits
) -> None:
    """Serve a model until SIGTERM or Ctrl-C, then finish what has begun.

    Args:
        model: its folder, shipped name or hub id.
        host: the address to listen at; any other than this machine's own needs a token.
        port: to listen at; 0 for any.
        device: where the network runs.
        dtype: its precision.
        limits: of requests.

    Raises:
        ValueError: if FastAPI is missing, a token is needed, or the address cannot be had.
    """
    try:
        from didlm.serve.app import create_app
        from didlm.serve.connections import server_of
    except ImportError as error:
        raise ValueError(f"the service takes libraries ({error.name}): {INSTALL}") from None
    token, loopback = os.environ.get(TOKEN) or None, is_loopback(host)
    if token is None and not loopback:
        raise ValueError(
            f"others than this machine could reach {host}: "
            f"set {TOKEN} in the environment to a secret that clients must send"
        )
    logging.basicConfig(format="didlm: %(message)s", level=logging.WARNING)
    logging.getLogger("didlm.serve").setLevel(logging.INFO)
    # Before the model is loaded: an address that is taken is found out at once.
    with _listen(host, port) as listening:
        app = create_app(load(model, device, dtype), Path(model).name, limits, token, loopback)
        server = server_of(app)

        def stop(*_: object) -> None:
            # Of a signal that comes before uvicorn takes care of them; once it has drained, it
            # raises its own once more for whoever was there before it.
            server.should_exit = True

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        address = f"[{host}]" if ":" in host else host
        print(f"didlm: http://{address}:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        server.run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A socket at an address.

    Raises:
        ValueError: if it cannot be had.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"cannot listen at {host}, port {port}: {reason}") from None
