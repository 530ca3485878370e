"""Which form of an answer a client wants: the header Accept."""

import re

from flow2onnx_serve.headers import Headers, values_of

__all__ = ["prefers_html"]

_WEIGHT = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")  # RFC 9110, 12.4.2


def prefers_html(headers: Headers) -> bool:
    """True where HTML is wanted rather than JSON, as browsers do (RFC 9110, 12.5.1).

    A client that takes both alike, as curl does, gets JSON.
    """
    given = b",".join(values_of(b"accept", headers)).decode("latin-1")
    ranges = dict(map(_range, given.split(",")))
    return _weight(ranges, "text", "html") > _weight(ranges, "application", "json")


def _range(text: str) -> tuple[str, float]:
    """A media range and its weight; one that is malformed is not wanted."""
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
    return name, float(weight) if _WEIGHT.fullmatch(weight) else 0.0


def _weight(ranges: dict[str, float], kind: str, name: str) -> float:
    """The weight of a media type: that of the range that names it most closely."""
    found = (ranges.get(text) for text in (f"{kind}/{name}", f"{kind}/*", "*/*"))
    return next((weight for weight in found if weight is not None), 0.0)
