"""The names by which a server may be called: the header Host of a request."""

import re
from collections.abc import Iterable
from ipaddress import ip_address

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.headers import Headers, values_of

__all__ = ["Hosts"]

_HOST = re.compile(rb"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._~-]+))(?::[0-9]{1,5})?")
_KNOWN = 256  # good headers that are remembered


class Hosts:
    """Lets through what calls the server by an address, by a name without a dot, or as allowed.

    A page of the web can make a browser ask a server that only the browser's machine reaches, by a
    name of the page's own that leads there: never an address, nor a name without a dot. `*.NAME`
    allows every name below NAME, `*` any name.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        names = {name.lower().rstrip(".") for name in allowed}
        self._is_open = "*" in names
        self._names = names
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))
        self._good: set[bytes] = set()

    def check(self, headers: Headers, version: str) -> None:
        """Raise `RequestError` unless the request has one such Host; HTTP/1.0 needs none."""
        given = values_of(b"host", headers)
        if len(given) == 1 and given[0] in self._good:
            return
        if not given and version == "1.0":
            return
        if len(given) != 1:
            raise RequestError(f"the request has {len(given)} headers Host", hint="give one")
        found = _HOST.fullmatch(given[0])
        if found is None:
            raise RequestError(f"the header Host is {given[0].decode('latin-1')!r}, not a host")
        if not self._is_allowed((found["v6"] or found["name"]).decode()):
            raise RequestError(f"no host {given[0].decode()!r} is served here", 421,
                               hint="start the server with --allowed-host")  # fmt: skip
        if len(self._good) < _KNOWN:
            self._good.add(given[0])

    def _is_allowed(self, name: str) -> bool:
        name = name.lower().rstrip(".")
        return (
            self._is_open
            or "." not in name
            or name in self._names
            or name.endswith(self._endings)
            or _is_address(name)
        )


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False
