"""YOLOv3's loss and boxes beside a plain loop over boxes and places."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from models.yolov3_loss import ANCHORS, IGNORED_ABOVE, Head, decoded, loss_of

SIDE, CLASSES, CELLS = 64, 3, (2, 4, 8)
WIDTH = 5 + CLASSES
OUTPUTS = [(2, 3 * WIDTH, n, n) for n in CELLS]
BOXES = np.array([
    [[0.3, 0.6, 0.2, 0.3], [0.8, 0.1, 1.0, 0.9], [0.3, 0.6, 0.22, 0.31], [0.5, 0.5, 0.5, 0.5]],
    [[1.0, 1.0, 0.05, 0.1], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]],
], np.float32)  # fmt: skip
LABELS = np.array([[0, 2, 1, -1], [1, -1, -1, -1]], np.int32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def entropy(label, logit):
    return np.maximum(logit, 0) - logit * label + np.log1p(np.exp(-np.abs(logit)))


def places(outputs):
    """For each image, every place: head, anchor, column, row, what is said, and the box meant."""
    for image in range(len(outputs[0])):
        found = []
        for h, y in enumerate(outputs):
            n = CELLS[h]
            said = y[image].reshape(3, WIDTH, n, n)
            for row in range(n):
                for column in range(n):
                    for slot in range(3):
                        anchor = 6 - 3 * h + slot
                        t = said[slot, :, row, column].astype(np.float64)
                        x, y_ = (column + sigmoid(t[0])) / n, (row + sigmoid(t[1])) / n
                        w, hh = np.exp(t[2:4]) * np.array(ANCHORS[anchor]) / SIDE
                        found.append((anchor, column, row, n, t, (x, y_, w, hh)))
        yield found


def overlap(a, b):
    sides = [min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2)
             - max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2) for i in (0, 1)]  # fmt: skip
    shared = max(sides[0], 0) * max(sides[1], 0)
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


def best_anchor(box):
    return int(np.argmax([overlap((0, 0, *box[2:]), (0, 0, w / SIDE, h / SIDE))
                          for w, h in ANCHORS]))  # fmt: skip


def loss_by_loops(outputs):
    losses = []
    for image, found in enumerate(places(outputs)):
        real = [(b, c) for b, c in zip(BOXES[image], LABELS[image], strict=True) if c >= 0]
        loss, taken = 0.0, set()
        for box, label in real:
            anchor = best_anchor(box)
            for i, (own, column, row, n, t, _) in enumerate(found):
                at = min(int(box[0] * n), n - 1), min(int(box[1] * n), n - 1)
                if own != anchor or (column, row) != at:
                    continue
                taken.add(i)
                wished = np.log(box[2:] * SIDE / np.array(ANCHORS[anchor]))
                place = entropy(box[:2] * n - np.array(at), t[:2]).sum()
                place += ((t[2:4] - wished) ** 2).sum() / 2
                loss += (2 - box[2] * box[3]) * place
                loss += entropy(np.arange(CLASSES) == label, t[5:]).sum()
        for i, (*_, t, meant) in enumerate(found):
            if i in taken:
                loss += entropy(1.0, t[4])
            elif max(overlap(meant, b) for b, _ in real) <= IGNORED_ABOVE:
                loss += entropy(0.0, t[4])
        losses.append(loss)
    return np.array(losses)


def heads_of(outputs):
    return [
        Head.of(y, ANCHORS[6 - 3 * i : 9 - 3 * i], SIDE, f"head{i}") for i, y in enumerate(outputs)
    ]


Outputs = [tp.Numpy.Placeholder(shape) for shape in OUTPUTS]


@pytest.fixture
def outputs():
    rng = np.random.default_rng(3)
    made = [rng.normal(size=shape).astype(np.float32) for shape in OUTPUTS]
    # a place beside that of the first box which means almost the same box
    t = made[0][0].reshape(3, WIDTH, 2, 2)
    anchor = np.array(ANCHORS[6]) / SIDE
    t[0, :4, 1, 0] = [0.4, -1.4, *np.log(BOXES[0, 0, 2:] / anchor)]
    return made


def test_loss(outputs):
    @flow.global_function(type="predict")
    def job(
        a: Outputs[0], b: Outputs[1], c: Outputs[2], boxes: tp.Numpy.Placeholder(BOXES.shape),
        labels: tp.Numpy.Placeholder(LABELS.shape, flow.int32),
    ) -> tp.Numpy:  # fmt: skip
        return loss_of(heads_of((a, b, c)), boxes, labels, SIDE)

    expected = loss_by_loops(outputs)
    np.testing.assert_allclose(job(*outputs, BOXES, LABELS), expected, rtol=1e-5)


def test_some_place_is_neither_box_nor_background(outputs):
    """Without such a place the loop above would not tell whether it is left out."""
    found = next(places(outputs))
    overlaps = [overlap(meant, BOXES[0, 0]) for *_, meant in found]
    anchor = best_anchor(BOXES[0, 0])
    assert any(o > IGNORED_ABOVE and found[i][0] != anchor for i, o in enumerate(overlaps))


def test_boxes(outputs):
    @flow.global_function(type="predict")
    def job(a: Outputs[0], b: Outputs[1], c: Outputs[2]) -> tuple[tp.Numpy, tp.Numpy]:
        return decoded(heads_of((a, b, c)))

    boxes, scores = job(*outputs)
    for image, found in enumerate(places(outputs)):
        meant = np.array([place[-1] for place in found])
        centre, half = meant[:, :2], meant[:, 2:] / 2
        corners = np.concatenate([centre - half, centre + half], 1)
        np.testing.assert_allclose(boxes[image], corners, rtol=1e-4, atol=1e-5)
        said = np.array([place[4] for place in found])
        np.testing.assert_allclose(
            scores[image], sigmoid(said[:, 4:5]) * sigmoid(said[:, 5:]), rtol=1e-4
        )
