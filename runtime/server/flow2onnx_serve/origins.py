"""The pages of the web whose browsers may change or compute something here: the header Origin."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.headers import Headers, values_of

__all__ = ["Origins"]

_OWN = (b"same-origin", b"none")  # a page of this server, an address that a person typed
_MARKS = (b"origin", b"sec-fetch-site")


class Origins:
    """Lets through what no browser sends, what the server's own pages send, and what is allowed.

    A browser sends a form of any page to any server that it reaches, without asking first, and
    says in Origin and in Sec-Fetch-Site (W3C, Fetch Metadata Request Headers) which page it was.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = {origin.rstrip("/").lower() for origin in allowed}

    def check(self, headers: Headers) -> None:
        """Raise `RequestError` with status 403 for a request that a page of elsewhere sends."""
        found = {name: value for name, value in headers if name in _MARKS}
        if not found:
            return
        origin = found.get(b"origin", b"").decode("latin-1")
        if "*" in self._allowed or origin.lower() in self._allowed:
            return
        if (site := found.get(b"sec-fetch-site")) is not None:
            is_own = site.lower() in _OWN
        else:
            is_own = _host_of(origin) == _called(headers)
        if not is_own:
            raise RequestError(
                f"a page of {origin or 'another site'} may not ask this server", 403,
                hint="start the server with --allowed-origin",
            )  # fmt: skip


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _called(headers: Headers) -> str | None:
    hosts = values_of(b"host", headers)
    return hosts[0].decode("latin-1").lower() if hosts else None
