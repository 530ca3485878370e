"""manifest.json behind its digest: read, and what was read written and read again."""

from collections.abc import Iterator
from pathlib import Path

from flow2onnx_runtime import Manifest
from flow2onnx_runtime.digest import NO_DIGEST, sign

from tests.fuzz.target import scratch

KEY = b'{\n "digest": "'
TOKENS = (b'"state"', b'"role"', b'"slot"', b'"counter"', b'"of"', b'"trainable"',
          b'"accumulate"', b'"in_place"', b'"files"', b'"predict"', b'"holds"',
          b'"reads"', b'"dtype"', b'"float32"', b"null", b"true", b"[]", b"{}",
          b"9007199254740992", b"\\ud800", b"NaN", b"-0", b"1e400", b'"bfloat16"',
          b'"metadata"', b'"learning_rate"', b'"weights"')  # fmt: skip


def seeds() -> Iterator[bytes]:
    """The manifests of the recorded bundles, from behind their digests."""
    bundles = Path(__file__).parents[3] / "runtime" / "conformance"
    for path in sorted(bundles.glob("*/bundle/manifest.json")):
        yield path.read_bytes()[len(KEY) + len(NO_DIGEST) :]


def run(data: bytes) -> None:
    """Read a manifest with these bytes behind its digest."""
    content = sign(KEY + NO_DIGEST.encode() + data, len(KEY))
    (scratch() / "manifest.json").write_bytes(content)
    manifest = Manifest.read(scratch(), verify=False)
    assert manifest.state_id
    manifest.write(scratch())
    assert Manifest.read(scratch(), verify=False) == manifest
