"""Files that tell their own SHA-256: computed with the place of its digits filled with zeros."""

import hashlib
from collections.abc import Iterable

from flow2onnx_runtime.errors import BundleError

__all__ = ["DIGEST_SIZE", "ZEROS", "check_digest", "signed"]

DIGEST_SIZE = 64
ZEROS = b"0" * DIGEST_SIZE


def signed(content: bytes, start: int, more: Iterable[memoryview] = ()) -> bytes:
    """`content` with the digest of itself and `more` written over the zeros at `start`."""
    end = start + DIGEST_SIZE
    assert content[start:end] == ZEROS, "the place of the digest is kept free"
    digest = hashlib.sha256(content)
    for part in more:
        digest.update(part)
    return content[:start] + digest.hexdigest().encode() + content[end:]


def check_digest(content: bytes, start: int, what: str) -> None:
    """Raise `BundleError` unless the digits at `start` are the digest of `content`."""
    end = start + DIGEST_SIZE
    found = content[max(start, 0) : end]
    blank = content[: max(start, 0)] + ZEROS + content[end:]
    if start < 0 or hashlib.sha256(blank).hexdigest().encode() != found:
        raise BundleError(
            f"{what}: its digest is not that of its content",
            hint="the file was changed or cut off: restore it, or export or save it again",
        )
