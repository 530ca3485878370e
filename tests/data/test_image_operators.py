"""Operators on images and on the objects on them, in jobs."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.data import detection
from flow2onnx.data.coco import CocoReader
from flow2onnx.data.images import resize
from flow2onnx.errors import ArgumentError, DataError, DTypeError, ShapeError, UnsupportedError
from tests.data.files import photo, photos, png, write_parts
from tests.data.test_readers import run

MEAN, STD = [10.0, 20.0, 30.0], [2.0, 4.0, 8.0]


@pytest.fixture
def pictures(tmp_path):
    return write_parts(tmp_path / "pictures", [photos(4)])


def read_images(folder, size=4, color="RGB"):
    r = flow.data.ofrecord_reader(folder, batch_size=size)
    return flow.data.OFRecordImageDecoder(r, "encoded", color)


def normalized(images, mirrored=None):
    images = np.stack(images)
    if mirrored is not None:
        images = np.where(np.reshape(mirrored, (-1, 1, 1, 1)) != 0, images[:, :, ::-1], images)
    return (images.astype(np.float32) - np.float32(MEAN)) / np.float32(STD)


PHOTOS = [photo(i) for i in range(4)]


def test_crop_mirror_normalize_of_buffers(pictures):
    def body():
        flags = flow.random.CoinFlip(4)
        made = flow.image.CropMirrorNormalize(
            read_images(pictures), flags, "RGB", "NHWC", 6, 5, 0.3, 1.0, MEAN, STD
        )
        return made, flags

    found = run(body, tp.Bundle[tp.Numpy], calls=6)
    assert len({tuple(flags) for _, flags in found}) > 1
    cut = [p[1:7, 5:10] for p in PHOTOS]
    for made, flags in found:
        np.testing.assert_allclose(made, normalized(cut, flags), rtol=1e-5)


@pytest.mark.parametrize("crop", [(0, 0), (6, 0), (7, 9)])
def test_crop_mirror_normalize_of_arrays(pictures, crop):
    def body():
        images = flow.image.Resize(read_images(pictures), target_size=(10, 12))[0]
        return flow.image.CropMirrorNormalize(
            images, color_space="RGB", crop_h=crop[0], crop_w=crop[1], mean=MEAN, std=STD
        )

    height, width = crop[0] or 12, crop[1] or 10
    top, left = (12 - height) // 2, (10 - width) // 2
    cut = [p[top : top + height, left : left + width] for p in PHOTOS]
    made = run(body)
    np.testing.assert_allclose(made, normalized(cut).transpose(0, 3, 1, 2), rtol=1e-5)


def test_crop_mirror_normalize_is_in_the_graph(pictures):
    @flow.global_function()
    def job(
        images: tp.Numpy.Placeholder((2, 12, 10, 3), flow.uint8),
        flags: tp.Numpy.Placeholder((2,), flow.int8),
    ) -> tp.Numpy:
        return flow.image.crop_mirror_normalize(
            images, flags, mean=[5.0], output_dtype=flow.float16
        )

    flags = np.array([0, 1], np.int8)
    made = job(np.stack(PHOTOS[:2]), flags)
    assert made.dtype == np.float16
    expected = np.stack([PHOTOS[0], PHOTOS[1][:, ::-1]]).transpose(0, 3, 1, 2) - 5.0
    np.testing.assert_array_equal(made, expected.astype(np.float16))


def test_one_coin_on_the_host_and_in_the_graph(pictures):
    def body():
        coin = flow.random.CoinFlip(4, seed=3, name="coin")
        before = coin + 0
        images = flow.image.flip(read_images(pictures), coin)
        return flow.image.Resize(images, target_size=(10, 12))[0], before, coin + 0

    found = run(body, tp.Bundle[tp.Numpy], calls=5)
    for images, before, after in found:
        np.testing.assert_array_equal(before, after)
        expected = [p[:, ::-1] if f else p for p, f in zip(PHOTOS, before, strict=True)]
        np.testing.assert_array_equal(images, expected)
    assert len({tuple(before) for _, before, _ in found}) > 1


def test_flip_by_a_number(pictures):
    def body():
        images = read_images(pictures)
        return [
            flow.image.Resize(flow.image.flip(images, code), target_size=(10, 12))[0]
            for code in (0, 1, 16, 17)
        ]

    found = run(body, tp.Bundle[tp.Numpy])
    for made, (rows, columns) in zip(found, [(1, 1), (1, -1), (-1, 1), (-1, -1)], strict=True):
        np.testing.assert_array_equal(made[0], PHOTOS[0][::rows, ::columns])


def test_resize_to_one_size(pictures):
    def body():
        made = flow.image.Resize(read_images(pictures), target_size=(5, 9), dtype=flow.float)
        assert made[2] is None
        return made[:2]

    images, factors = run(body, tp.Bundle[tp.Numpy])
    assert (images.shape, images.dtype) == ((4, 9, 5, 3), np.float32)
    np.testing.assert_array_equal(images[1], resize(PHOTOS[1], 9, 5))
    np.testing.assert_array_equal(factors, np.tile(np.float32([0.5, 0.75]), (4, 1)))


def test_resize_by_a_side(tmp_path):
    records = [{"encoded": png(photo(i, *size))} for i, size in enumerate([(10, 20), (30, 15)])]
    folder = write_parts(tmp_path / "d", [records])

    def body():
        images, factors, sizes = flow.image.Resize(
            read_images(folder, 2), 5, keep_aspect_ratio=True, max_size=9
        )
        assert images.dtype is flow.tensor_buffer
        again, new_sizes, same = flow.image.target_resize(read_images(folder, 2), 5, max_size=9)
        whole = flow.image.batch_align(again, (16, 16, 3), flow.float, 8)
        return whole, factors, sizes, new_sizes, same

    whole, factors, sizes, new_sizes, same = run(body, tp.Bundle[tp.Numpy])
    assert sizes.tolist() == new_sizes.tolist() == [[9, 4], [4, 9]]
    np.testing.assert_allclose(factors, np.float32([[0.45, 0.4], [4 / 15, 0.3]]))
    np.testing.assert_array_equal(same, factors)
    assert whole.shape == (2, 16, 16, 3)
    np.testing.assert_array_equal(whole[0, :4, :9], resize(photo(0, 10, 20), 4, 9))
    assert not whole[0, 4:].any()
    assert not whole[0, :, 9:].any()


def test_resize_in_the_spelling_of_old(pictures):
    def body():
        images = read_images(pictures)
        exact = flow.image.Resize(images, resize_x=6, resize_y=8, interp_type="Linear")
        grey = flow.image.Resize(
            read_images(pictures, color="GRAY"), color_space="GRAY", resize_x=6, resize_y=8
        )
        shorter = flow.image.Resize(images, resize_shorter=5, color_space="RGB")
        assert shorter.dtype is flow.tensor_buffer
        cut = flow.image.CropMirrorNormalize(shorter, None, "RGB", crop_h=5, crop_w=5)
        return exact, grey, cut

    exact, grey, cut = run(body, tp.Bundle[tp.Numpy])
    np.testing.assert_array_equal(exact[0], resize(PHOTOS[0], 8, 6, "bilinear"))
    assert grey.shape == (4, 8, 6, 1)
    assert cut.shape == (4, 3, 5, 5)


def test_normalize_apart(pictures):
    def body():
        images = flow.image.normalize(read_images(pictures), STD, MEAN)
        return flow.tensor_buffer_to_tensor(images, flow.float, (12, 10, 3))

    np.testing.assert_allclose(run(body), normalized(PHOTOS), rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (
            lambda x: flow.image.Resize(x, target_size=5),
            ArgumentError,
            "target_size is (width, height)",
        ),
        (lambda x: flow.image.Resize(x, (4, 4), channels=2), ArgumentError, "channels is 1 or 3"),
        (
            lambda x: flow.image.Resize(x, (4, 4), interpolation_type="best"),
            ArgumentError,
            "interpolation_type is one of",
        ),
        (
            lambda x: flow.image.Resize(x, (4, 4), dtype=flow.int32),
            DTypeError,
            "pixels are uint8 or",
        ),
        (
            lambda x: flow.image.Resize(x, (4, 4), keep_aspect_ratio=True),
            ArgumentError,
            "target_size is a positive int",
        ),
        (
            lambda x: flow.image.Resize(x, 4, keep_aspect_ratio=True, resize_side="left"),
            ArgumentError,
            "resize_side is one of shorter, longer",
        ),
        (lambda x: flow.image.CropMirrorNormalize(x), ArgumentError, "need crop_h and crop_w"),
        (
            lambda x: flow.image.CropMirrorNormalize(x, crop_h=2, crop_w=2, crop_pos_x=2),
            ArgumentError,
            "in [0, 1]",
        ),
        (
            lambda x: flow.image.CropMirrorNormalize(x, crop_h=2, crop_w=2, mean=[1, 2]),
            ArgumentError,
            "mean is a number for each channel",
        ),
        (
            lambda x: flow.image.CropMirrorNormalize(x, crop_h=2, crop_w=2, std=[0]),
            ArgumentError,
            "std is not 0",
        ),
        (
            lambda x: flow.image.CropMirrorNormalize(
                x, flow.random.CoinFlip(3), crop_h=2, crop_w=2
            ),
            ShapeError,
            "mirror_blob has one number for each of 4 images",
        ),
        (
            lambda x: flow.image.CropMirrorNormalize(
                flow.image.Resize(x, (4, 4))[0], color_space="GRAY", mean=MEAN
            ),
            ShapeError,
            "takes uint8 images (batch, height, width, 1)",
        ),
        (
            lambda x: flow.image.CropMirrorNormalize(flow.image.Resize(x, (4, 4))[0], crop_h=9),
            ShapeError,
            "a crop of 4 × 9 from images of 4 × 4",
        ),
        (
            lambda x: flow.image.batch_align(x, (4, 4), flow.float, 8),
            ArgumentError,
            "shape is (height",
        ),
        (
            lambda x: flow.image.batch_align(x, (4, 4, 3), flow.float, 6),
            ArgumentError,
            "a power of 2",
        ),
        (lambda x: flow.image.flip(x, 2), ArgumentError, "flip_code is 0, 1, 16 or 17"),
        (
            lambda x: flow.image.flip(x, flow.random.CoinFlip(3)),
            DTypeError,
            "takes int8 of shape (4,)",
        ),
        (
            lambda x: flow.image.flip(x, flow.constant(1, flow.int8, (4,))),
            UnsupportedError,
            "is computed in the graph, and image.flip reads it on the host",
        ),
    ],
)
def test_misuse(pictures, body, kind, text):
    with pytest.raises(kind, match=re.escape(text)) as caught:
        run(lambda: body(read_images(pictures)))
    assert "test_image_operators.py:" in caught.value.source


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (lambda x: flow.image.batch_align(x, (4, 4, 3), flow.float, 8), "is larger than (4, 4, 3)"),
        (
            lambda x: flow.image.CropMirrorNormalize(x, crop_h=20, crop_w=2),
            "an image of 10 × 12 pixels",
        ),
        (lambda x: flow.image.Resize(x, (4, 4), channels=1)[0], "1 are asked for"),
        (
            lambda x: flow.tensor_buffer_to_tensor(flow.image.decode(x), flow.float, (1,)),
            "no image that Pillow knows",
        ),
        (
            lambda x: flow.image.Resize(
                flow.image_normalize(
                    flow.image.Resize(x, 3, keep_aspect_ratio=True, color_space=None)[0],
                    [1.0] * 3,
                    0.0,
                ),
                (4, 4),
                channels=1,
            )[0],
            "1 are asked for",
        ),
    ],
)
def test_what_images_do_not_fit(pictures, body, text):
    with pytest.raises(DataError, match=re.escape(text)) as caught:
        run(lambda: body(read_images(pictures)))
    assert f"{pictures}/part-0, record 0" in str(caught.value)


# --- objects on images


BOXES = np.array([[1, 2, 5, 6], [0, 0, 9, 7]], np.float32)
SIZE = np.array([10, 8])


def test_boxes_on_mirrored_images():
    np.testing.assert_array_equal(
        detection.flip_boxes(BOXES, SIZE, 1), [[4, 2, 8, 6], [0, 0, 9, 7]]
    )
    np.testing.assert_array_equal(
        detection.flip_boxes(BOXES, SIZE, 16), [[1, 1, 5, 5], [0, 0, 9, 7]]
    )
    twice = detection.flip_boxes(detection.flip_boxes(BOXES, SIZE, 17), SIZE, 17)
    np.testing.assert_array_equal(twice, BOXES)


def test_points_on_mirrored_images():
    points = np.array([[1, 2], [10, 8]], np.float32)
    np.testing.assert_array_equal(detection.flip_polygons(points, SIZE, 17), [[9, 6], [0, 0]])


def test_scaled():
    np.testing.assert_array_equal(detection.scale(BOXES[:1], np.float32([2, 3])), [[2, 6, 10, 18]])
    np.testing.assert_array_equal(
        detection.scale(BOXES[:, :2], np.float32([2, 3])), [[2, 6], [0, 0]]
    )


def test_masks():
    square = [[1, 1], [4, 1], [4, 3], [1, 3]]
    hole = [[2, 2], [2, 2], [2, 2]]
    triangle = [[0.4, 6.4], [6, 0], [5.6, 6]]
    points = np.array([*square, *hole, *triangle], np.float32)
    places = np.array(
        [(i, 0, 0) for i in range(4)]
        + [(i, 1, 0) for i in range(3)]
        + [(i, 0, 1) for i in range(3)],
        np.int32,
    )
    made = detection.masks(points, places, np.array([8, 7]))
    assert (made.shape, made.dtype) == ((2, 7, 8), np.int8)
    expected = np.zeros((7, 8), np.int8)
    expected[1:4, 1:5] = 1
    np.testing.assert_array_equal(made[0], expected)
    y, x = np.mgrid[:7, :8]
    np.testing.assert_array_equal(made[1], ((x <= 6) & (x + y >= 6) & (y <= 6)).astype(np.int8))


def test_masks_outside_the_image():
    points = np.array([[-5, -5], [30, -5], [30, 3], [-5, 3]], np.float32)
    places = np.array([(i, 0, 0) for i in range(4)], np.int32)
    made = detection.masks(points, places, np.array([4, 6]))[0]
    np.testing.assert_array_equal(made, np.repeat([[1], [1], [1], [1], [0], [0]], 4, axis=1))


@pytest.mark.parametrize(
    ("points", "places"),
    [
        (np.zeros((2, 3)), np.zeros((2, 3), int)),
        (np.zeros((2, 2)), np.zeros((3, 3), int)),
        (np.zeros((1, 2)), np.array([[0, 0, 10**9]])),
        (np.array([[0, 0], [1e9, 1]]), np.array([[0, 0, 0], [1, 0, 0]])),
    ],
)
def test_masks_that_cannot_be(points, places):
    with pytest.raises(DataError):
        detection.masks(points, places, np.array([4, 6]))


# --- COCO


def annotation(number, image, box, category=3, outline=None, **more):
    x, y, w, h = box
    outline = outline or [[x, y, x + w, y, x + w, y + h, x, y + h]]
    return {
        "id": number,
        "image_id": image,
        "bbox": box,
        "category_id": category,
        "iscrowd": 0,
        "segmentation": outline,
        **more,
    }


@pytest.fixture
def coco(tmp_path):
    (tmp_path / "images").mkdir()
    shapes = {7: (12, 10), 3: (12, 10), 5: (30, 10), 9: (12, 10), 4: (30, 10)}
    for number, (height, width) in shapes.items():
        (tmp_path / "images" / f"{number}.png").write_bytes(png(photo(number, height, width)))
    content = {
        "images": [
            {"id": n, "file_name": f"{n}.png", "height": h, "width": w}
            for n, (h, w) in shapes.items()
        ],
        "categories": [{"id": 8}, {"id": 3}],
        "annotations": [
            annotation(1, 7, [1, 2, 4, 5]),
            annotation(2, 7, [-3, 0, 20, 30], 8),
            annotation(3, 3, [0, 0, 5, 5], iscrowd=1),
            annotation(4, 3, [2, 3, 4, 4]),
            annotation(5, 5, [0, 0, 8, 20], 8),
            annotation(6, 9, [0, 0, 1, 1]),
            annotation(7, 4, [1, 1, 5, 5]),
        ],
    }
    file = tmp_path / "instances.json"
    file.write_text(json.dumps(content))
    return str(file), str(tmp_path / "images")


def coco_batches(coco, size=2, shuffles=False, groups=False, only_useful=True):
    file, folder = coco
    reader = CocoReader(
        annotation_file=file, image_dir=folder, size=size, shuffles=shuffles, seed=0,
        groups=groups, only_useful=only_useful,
    )  # fmt: skip
    return reader.batches()


def test_coco_images_come_by_number(coco):
    batches = coco_batches(coco)
    _, ids, sizes, boxes, labels, points, places = next(batches)
    assert ids == [3, 4]
    assert sizes == [(12, 10), (30, 10)]
    assert boxes[0].tolist() == [[2, 3, 5, 6]]
    assert [a.tolist() for a in labels] == [[1], [1]]
    assert points[0].shape == (4, 2)
    assert places[0].tolist() == [[i, 0, 0] for i in range(4)]
    _, ids, _, boxes, labels, _, places = next(batches)
    assert ids == [5, 7]
    assert boxes[1].tolist() == [[1, 2, 4, 6], [0, 0, 9, 11]]
    assert labels[1].tolist() == [1, 2]
    assert set(places[1][:, 2]) == {0, 1}
    assert next(batches)[1] == [3, 4]
    assert next(coco_batches(coco, 5, only_useful=False))[1] == [3, 4, 5, 7, 9]


def test_coco_groups_are_of_like_shape(coco):
    batches = coco_batches(coco, groups=True)
    found = [tuple(next(batches)[1]) for _ in range(6)]
    assert set(found) <= {(3, 7), (4, 5), (7, 3), (5, 4)}
    assert found[:2] == [(3, 7), (4, 5)]


def test_coco_shuffles_each_epoch(coco):
    batches = coco_batches(coco, 4, shuffles=True)
    epochs = [tuple(next(batches)[1]) for _ in range(8)]
    assert {tuple(sorted(e)) for e in epochs} == {(3, 4, 5, 7)}
    assert len(set(epochs)) > 2


IMAGE = {"id": 1, "file_name": "1.jpg", "height": 4, "width": 6}
BOX = {"image_id": 1, "category_id": 7, "iscrowd": 0, "bbox": [0, 0, 3, 3]}


@pytest.mark.parametrize(("change", "text"), [
    ({"images": [{**IMAGE, "file_name": "../1.jpg"}]}, "no path inside the folder"),
    ({"images": [{**IMAGE, "file_name": "/etc/passwd"}]}, "no path inside the folder"),
    ({"images": [{**IMAGE, "file_name": "C:\\x"}]}, "no path inside the folder"),
    ({"images": [{**IMAGE, "file_name": "a/..\\x"}]}, "no path inside the folder"),
    ({"images": [{**IMAGE, "file_name": ""}]}, "no path inside the folder"),
    ({"images": [{**IMAGE, "width": 0}]}, "has the size 4 x 0"),
    ({"images": [{**IMAGE, "height": float("inf")}]}, "OverflowError"),
    ({"annotations": [{**BOX, "category_id": 8}]}, "image 1 has annotations .* KeyError: 8"),
    ({"annotations": [{**BOX, "segmentation": [[1, 2, 3]]}]}, "image 1 has annotations .* reshape"),
    ({"annotations": [3]}, "TypeError"),
    ({"annotations": [{**BOX, "keypoints": 3}]}, "TypeError"),
    ({"categories": [[]]}, "TypeError"),
])  # fmt: skip
def test_coco_annotations_that_are_none(coco, change, text):
    file, folder = coco
    Path(folder, "1.jpg").write_bytes(b"")
    content = {"images": [IMAGE], "annotations": [BOX], "categories": [{"id": 7}]}
    Path(file).write_text(json.dumps({**content, **change}))
    with pytest.raises(DataError, match=text):
        next(coco_batches((file, folder)))


def test_coco_annotations_that_nest_without_end(coco):
    Path(coco[0]).write_text("[" * 100_000)
    with pytest.raises(DataError, match="RecursionError"):
        next(coco_batches(coco))


def test_coco_images_that_are_pipes(coco):
    file, folder = coco
    os.mkfifo(Path(folder, "pipe.jpg"))
    content = {"images": [{**IMAGE, "file_name": "pipe.jpg"}], "annotations": [BOX]}
    Path(file).write_text(json.dumps({**content, "categories": [{"id": 7}]}))
    with pytest.raises(DataError, match="it is no regular file"):
        next(coco_batches(coco))


def test_coco_job(coco):
    """A detection job prepares images and boxes before its network."""

    def body():
        data, ids, size, boxes, labels, points, places = flow.data.coco_reader(
            *coco, batch_size=2, shuffle=False, group_by_aspect_ratio=False, name="coco"
        )
        assert (size.shape, labels.dtype) == ((2, 2), flow.tensor_buffer)
        image = flow.image_decode(data, dtype=flow.float)
        image, new_size, scale = flow.image_target_resize(image, 20, max_size=40)
        boxes = flow.object_bbox_scale(boxes, scale)
        points = flow.object_segmentation_polygon_scale(points, scale)
        code = flow.random.CoinFlip(2)
        image = flow.image_flip(image, code)
        boxes = flow.detection.object_bbox_flip(boxes, new_size, code)
        points = flow.object_segmentation_polygon_flip(points, new_size, code)
        masks = flow.object_segmentation_polygon_to_mask(points, places, new_size)
        image = flow.image_normalize(image, (1.0, 1.0, 1.0), (102.0, 115.0, 122.0))
        image = flow.image_batch_align(image, (64, 32, 3), flow.float, 16)
        masks = flow.tensor_buffer_to_tensor(masks, flow.int8, (1, 24, 20))
        one = flow.tensor_buffer_to_tensor(boxes, flow.float, (1, 4))
        return ids, image, one, masks, new_size, code

    with pytest.raises(DataError, match=r"a buffer of shape \(1, 40, 13\), \(1, 24, 20\) is asked"):
        run(body, tp.Bundle[tp.Numpy])


def test_coco_job_of_equal_images(coco, tmp_path):
    content = json.loads(Path(coco[0]).read_text())
    content["images"] = [i for i in content["images"] if i["id"] in (3, 9)]
    content["annotations"] = [annotation(1, 3, [2, 3, 4, 4]), annotation(2, 9, [0, 0, 6, 8])]
    file = tmp_path / "two.json"
    file.write_text(json.dumps(content))

    def body():
        data, ids, _, boxes, labels, points, places = flow.data.coco_reader(
            str(file), coco[1], 2, shuffle=False, name="coco"
        )
        image = flow.image.decode(data, dtype=flow.float, color_space="RGB")
        image, size, scale = flow.image_target_resize(image, 20, max_size=40)
        code = flow.random.CoinFlip(2)
        boxes = flow.object_bbox_flip(flow.object_bbox_scale(boxes, scale), size, code)
        points = flow.object_segmentation_polygon_scale(points, scale)
        points = flow.object_segmentation_polygon_flip(points, size, code)
        masks = flow.object_segmentation_polygon_to_mask(points, places, size)
        return (
            ids,
            flow.image.batch_align(flow.image.flip(image, code), (24, 20, 3), flow.float, 4),
            flow.tensor_buffer_to_tensor(boxes, flow.float, (1, 4)),
            flow.tensor_buffer_to_tensor(labels, flow.int32, (1,)),
            flow.tensor_buffer_to_tensor(masks, flow.int8, (1, 24, 20)),
            size,
            code,
        )

    for ids, image, boxes, labels, masks, size, code in run(body, tp.Bundle[tp.Numpy], calls=4):
        assert ids.tolist() == [3, 9]
        assert size.tolist() == [[20, 24], [20, 24]]
        assert labels.tolist() == [[1], [1]]
        whole = resize(photo(3).astype(np.float32), 24, 20)
        np.testing.assert_allclose(image[0], whole[:, ::-1] if code[0] else whole, rtol=1e-5)
        x0, y0, x1, y1 = boxes[1, 0]
        assert (y0, y1) == (0, 14)
        assert (x0, x1) == ((9, 19) if code[1] else (0, 10))
        assert masks[1, 0].sum() == pytest.approx(17 * 13, abs=20)
        assert masks[1, 0, 5, 15 if code[1] else 5] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no COCO annotations: JSONDecodeError"),
        ("[]", "no COCO annotations: TypeError"),
        ('{"images": [], "annotations": [], "categories": []}', "none of its 0 images"),
        ('{"images": [{"id": 1}]}', "no COCO annotations: KeyError: 'annotations'"),
    ],
)
def test_files_that_hold_no_annotations(coco, tmp_path, text, message):
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        next(coco_batches((str(file), coco[1])))
    assert caught.value.place == str(file)


def test_missing_images_and_names(coco, tmp_path):
    with pytest.raises(DataError, match=r"3\.png: No such file"):
        next(coco_batches((coco[0], str(tmp_path))))
    with pytest.raises(DataError, match=r"none\.json: No such file"):
        next(coco_batches((str(tmp_path / "none.json"), coco[1])))
    with pytest.raises(ArgumentError, match="coco_reader needs a name"):
        run(lambda: flow.data.coco_reader(*coco, 2)[1])
