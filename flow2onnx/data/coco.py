"""COCO annotations: which images there are, and what is on them, in the order they are read."""

import json
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any

import numpy as np
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.files import open_regular

from flow2onnx.errors import DataError

__all__ = ["CocoReader", "Photo"]

_LEAST_KEYPOINTS = 10
# What other content than that of COCO comes to.
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Photo:
    """One image with its annotations, those of crowds left out."""

    id: int
    file: str
    height: int
    width: int
    annotations: tuple[dict[str, Any], ...]

    @property
    def is_useful(self) -> bool:
        """True if any object is more than a pixel wide, and enough key points are visible."""
        if not any(a["bbox"][2] > 1 and a["bbox"][3] > 1 for a in self.annotations):
            return False
        if "keypoints" not in self.annotations[0]:
            return True
        points = [v for a in self.annotations for v in a.get("keypoints", [])[2::3]]
        return len([v for v in points if v > 0]) >= _LEAST_KEYPOINTS

    def boxes(self) -> Array:
        """The boxes as left, top, right, bottom, inside the image and not empty."""
        given = np.array([a["bbox"] for a in self.annotations], np.float32).reshape(-1, 4)
        corners = np.concatenate(
            [given[:, :2], given[:, :2] + np.maximum(given[:, 2:] - 1, 0)], axis=1
        )
        last = np.tile(np.array([self.width - 1, self.height - 1], np.float32), 2)
        corners = np.clip(corners, 0, last)
        kept: Array = corners[(corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])]
        return kept

    def polygons(self) -> tuple[Array, Array]:
        """The points of all polygons; for each its number, its polygon's and its object's."""
        points, places = [np.empty((0, 2), np.float32)], [np.empty((0, 3), np.int32)]
        for number, annotation in enumerate(self.annotations):
            outline = annotation.get("segmentation")
            for part, flat in enumerate(outline if isinstance(outline, list) else []):
                row = np.array(flat, np.float32).reshape(-1, 2)
                points.append(row)
                index = np.full((len(row), 3), (0, part, number), np.int32)
                index[:, 0] = np.arange(len(row))
                places.append(index)
        return np.concatenate(points), np.concatenate(places)


@dataclass(frozen=True, kw_only=True)
class CocoReader:
    """Images of an annotation file in batches, for ever; in groups of like shape if asked."""

    annotation_file: str
    image_dir: str
    size: int
    shuffles: bool
    seed: int
    groups: bool
    only_useful: bool

    def batches(self) -> Iterator[tuple[Sequence[Any], ...]]:
        """Images, ids, sizes, boxes, labels, polygons and their indices, batch by batch."""
        photos, labels = self._photos()
        arrange = _by_group if self.groups else _in_order
        for batch in arrange(self._endless(photos), self.size):
            samples = [self._sample(photo, labels) for photo in batch]
            yield tuple(list(column) for column in zip(*samples, strict=True))

    def _sample(self, photo: Photo, labels: dict[int, int]) -> tuple[Any, ...]:
        """Image, id, size, boxes, labels, polygons and their indices of one image."""
        content = self._bytes(photo)
        try:
            points, places = photo.polygons()
            numbers = _labels(photo, labels)
        except _DAMAGED as error:
            raise DataError(
                f"image {photo.id} has annotations that cannot be read: "
                f"{type(error).__name__}: {error}",
                place=self.annotation_file,
                hint="give an instances_….json file",
            ) from error
        size = (photo.height, photo.width)
        return content, photo.id, size, photo.boxes(), numbers, points, places

    def _endless(self, photos: list[Photo]) -> Iterator[Photo]:
        order, epoch = np.arange(len(photos)), 0
        while True:
            if self.shuffles:
                np.random.default_rng([self.seed, epoch]).shuffle(order)
            yield from (photos[i] for i in order)
            epoch += 1

    def _bytes(self, photo: Photo) -> Array:
        path = os.path.join(self.image_dir, photo.file)
        try:
            with open_regular(path) as file:
                return np.frombuffer(file.read(), np.uint8)
        except OSError as error:
            raise DataError(
                str(error.strerror or error), place=path, hint="is image_dir right?"
            ) from error

    def _photos(self) -> tuple[list[Photo], dict[int, int]]:
        try:
            with open_regular(self.annotation_file) as file:
                return _parse(json.load(file), self.only_useful)
        except DataError as error:
            raise error.at(self.annotation_file) from None
        except OSError as error:
            text = str(error.strerror or error)
        except _DAMAGED as error:
            text = f"no COCO annotations: {type(error).__name__}: {error}"
        raise DataError(text, place=self.annotation_file, hint="give an instances_….json file")


def _parse(content: Any, only_useful: bool) -> tuple[list[Photo], dict[int, int]]:
    on_image: dict[int, list[dict[str, Any]]] = {int(i["id"]): [] for i in content["images"]}
    for annotation in content["annotations"]:
        if not annotation["iscrowd"]:
            left, top, width, height = (float(v) for v in annotation["bbox"])
            annotation["bbox"] = [left, top, width, height]
            on_image[annotation["image_id"]].append(annotation)
    photos = [
        _photo(i, tuple(on_image[int(i["id"])]))
        for i in sorted(content["images"], key=lambda image: image["id"])
    ]
    kept = [p for p in photos if p.is_useful] if only_useful else photos
    if not kept:
        raise DataError(f"none of its {len(photos)} images has a usable annotation")
    numbers = sorted(int(c["id"]) for c in content["categories"])
    return kept, {category: i + 1 for i, category in enumerate(numbers)}


def _photo(image: dict[str, Any], annotations: tuple[dict[str, Any], ...]) -> Photo:
    """An image of a positive size, and of a file that is in the folder of the images."""
    name, height, width = str(image["file_name"]), int(image["height"]), int(image["width"])
    is_outside = PureWindowsPath(name).anchor or ".." in re.split(r"[/\\]", name)
    if not name or "\0" in name or is_outside:
        raise ValueError(f"the file {name!r} is no path inside the folder of the images")
    if height < 1 or width < 1:
        raise ValueError(f"the image {name!r} has the size {height} x {width}")
    return Photo(int(image["id"]), name, height, width, annotations)


def _labels(photo: Photo, labels: dict[int, int]) -> Array:
    return np.array([labels[a["category_id"]] for a in photo.annotations], np.int32)


def _in_order(photos: Iterator[Photo], size: int) -> Iterator[list[Photo]]:
    while True:
        yield [next(photos) for _ in range(size)]


def _group(photo: Photo) -> int:
    return photo.height // photo.width


def _by_group(photos: Iterator[Photo], size: int) -> Iterator[list[Photo]]:
    """Batches of one group (the whole part of height / width), the longest begun first."""
    begun: deque[list[Photo]] = deque()
    while True:
        batch = begun.popleft() if begun else [next(photos)]
        while len(batch) < size:
            photo = next(photos)
            group = _group(photo)
            if group == _group(batch[0]):
                batch.append(photo)
                continue
            same = [b for b in begun if _group(b[0]) == group and len(b) < size]
            same[0].append(photo) if same else begun.append([photo])
        yield batch
