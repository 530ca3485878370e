"""Files that begin with a key and the SHA-256 of all that follows it."""

import hashlib
from collections.abc import Iterable
from io import BufferedReader

from flow2onnx_runtime.errors import BundleError

__all__ = ["NO_DIGEST", "check_digest", "sign"]

_SIZE = 64  # digits of a SHA-256 in hexadecimal
NO_DIGEST = "0" * _SIZE  # keeps the place of a digest until `sign` knows it


def sign(content: bytes, start: int, more: Iterable[memoryview] = ()) -> bytes:
    """`content` with, at `start`, the digest of what lies behind it there and in `more`."""
    end = start + _SIZE
    assert content[start:end] == NO_DIGEST.encode(), "the place of the digest is kept free"
    digest = hashlib.sha256(content[end:])
    for part in more:
        digest.update(part)
    return content[:start] + digest.hexdigest().encode() + content[end:]


def check_digest(file: BufferedReader, key: bytes, what: str) -> None:
    """Raise `BundleError` unless the file goes on with `key` and the digest of all the rest."""
    head = file.read(len(key) + _SIZE)
    if head != key + hashlib.file_digest(file, "sha256").hexdigest().encode():
        raise BundleError(
            f"{what}: its digest is not that of its content",
            hint="the file was changed or cut off: restore it, or export or save it again",
        )
