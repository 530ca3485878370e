"""COCO annotations: which images there are, and what is on them."""

import itertools
import json
from collections.abc import Iterator

from flow2onnx.data.coco import CocoReader
from tests.fuzz.target import scratch

TOKENS = (b'"images"', b'"annotations"', b'"categories"', b'"id"', b'"bbox"',
          b'"iscrowd"', b'"file_name"', b'"../x"', b'"segmentation"', b'"keypoints"',
          b'"category_id"', b"1e999", b"NaN", b"-1", b"[[", b"{}", b"null",
          b"18446744073709551616")  # fmt: skip


def seeds() -> Iterator[bytes]:
    """Two images; boxes, outlines, a crowd, key points."""
    image = {"id": 1, "file_name": "a.jpg", "height": 4, "width": 6}
    box = {"image_id": 1, "category_id": 7, "iscrowd": 0, "bbox": [1, 1, 2, 2]}
    outline = {**box, "segmentation": [[0, 0, 1, 1, 2, 0]]}
    points = {**box, "keypoints": [1, 1, 2] * 12}
    content = {"images": [image, {**image, "id": 2}], "categories": [{"id": 7}]}
    for annotations in ([box], [outline, {**box, "iscrowd": 1}], [points]):
        yield json.dumps({**content, "annotations": annotations}).encode()


def run(data: bytes) -> None:
    """Read two batches."""
    path = scratch() / "instances.json"
    path.write_bytes(data)
    (scratch() / "a.jpg").write_bytes(b"\xff\xd8")
    for groups in (False, True):
        reader = CocoReader(annotation_file=str(path), image_dir=str(scratch()), size=2,
                            shuffles=True, seed=0, groups=groups, only_useful=True)  # fmt: skip
        for batch in itertools.islice(reader.batches(), 2):
            assert len(batch) == 7
