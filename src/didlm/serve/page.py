"""The files of the page, read once: nothing that a client sends becomes a path."""

from importlib.resources import files

_KINDS = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page_files() -> dict[str, tuple[bytes, dict[str, str]]]:
    """By address: what is sent, and with which headers."""
    folder = files("didlm.serve").joinpath("page")
    found = {}
    for name, kind in _KINDS.items():
        headers = {"content-type": kind, "content-security-policy": _POLICY}
        address = "/" if name == "index.html" else f"/{name}"
        found[address] = folder.joinpath(name).read_bytes(), headers
    return found
