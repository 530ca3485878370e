"""Requests and answers that are packed: gzip, and what HTTP calls deflate."""

import zlib

from flow2onnx_serve.errors import RequestError

__all__ = ["GZIP_MAGIC", "MOST_PACKED", "deflate", "inflate"]

GZIP_MAGIC = b"\x1f\x8b"
MOST_PACKED = 1032  # bytes that one byte may become, says zlib's documentation
_WINDOWS = {b"gzip": 31, b"deflate": 15}  # zlib's numbers
_SMALL = 256  # bytes that are not worth it


def inflate(body: bytes | bytearray, encoding: bytes, limit: int) -> bytes:
    """The content of a packed body, of which no more than `limit` bytes are ever made."""
    if encoding not in _WINDOWS:
        raise RequestError(f"content-encoding {encoding.decode('latin-1')!r} is not known",
                           hint="gzip or deflate")  # fmt: skip
    packer = zlib.decompressobj(_WINDOWS[encoding])
    try:
        content = packer.decompress(body, limit + 1)
    except zlib.error as error:
        raise RequestError(f"the body is not {encoding.decode()}: {error}") from error
    if len(content) > limit:
        raise RequestError(f"the body is larger than {limit} bytes", 413)
    if not packer.eof:
        raise RequestError(f"the body is cut off: it is not all of its {encoding.decode()}")
    return content


def deflate(
    answer: bytes | bytearray | memoryview, accepted: bytes
) -> tuple[bytes | bytearray | memoryview, list[tuple[bytes, bytes]]]:
    """The answer, packed if the client asks for it before anything else, and headers to say so."""
    first = accepted.split(b",")[0].strip()
    if first not in _WINDOWS or len(answer) < _SMALL:
        return answer, []
    packer = zlib.compressobj(1, zlib.DEFLATED, _WINDOWS[first])
    return packer.compress(answer) + packer.flush(), [(b"content-encoding", first)]
