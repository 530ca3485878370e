"""`flow2onnx lora --loss`: adapters of a network of images, on arrays and on pictures."""

import csv
import errno
import json
import re

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from flow2onnx_runtime.adapters import read_adapter
from flow2onnx_runtime.token_log import RowLog

import flow2onnx as flow
from flow2onnx.cli.app import app
from flow2onnx.imported import adapter_of, training_memory
from tests.cli.interruption import interrupt_after
from tests.imported.lora.convolutions import CLASSES, write_network

ROWS, SIZE = 20, 6  # the last batch of an epoch has two rows


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A network, and arrays for it in a file and in a folder."""
    folder = tmp_path_factory.mktemp("network")
    write_network(folder / "net.onnx")
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.standard_normal((ROWS, 3, 8, 8)).astype(np.float32),
        "labels": rng.integers(0, CLASSES, ROWS),
    }
    np.savez(folder / "x.npz", **arrays)
    (folder / "arrays").mkdir()
    for name, array in arrays.items():
        np.save(folder / "arrays" / f"{name}.npy", array)
    return folder


def lora(*args):
    found = CliRunner().invoke(app, ["lora", *map(str, args)])
    return found.exit_code, found.output


def arguments(place, out, *more, data="x.npz"):
    return [place / "net.onnx", "--loss", "cross_entropy", "--data", place / data, "-o", out,
            "--rank", 4, "--batch-size", SIZE, "--lr", "0.01", "--json", *more]  # fmt: skip


def rows(path):
    with path.open() as file:
        return [{n: float(v) for n, v in row.items() if v} for row in csv.DictReader(file)]


def parameters(out):
    one, two = (read_adapter(out / n).parameters() for n in ("adapter.onnx_adapter", "peft"))
    assert one.keys() == two.keys()
    return one


@pytest.mark.slow
def test_training_is_that_of_lora_network(place, tmp_path):
    out = tmp_path / "out"
    code, text = lora(*arguments(
        place, out, "--epochs", 3, "--schedule", "constant", "--validation", place / "arrays",
        "--validate-every", 2, "--metrics", "accuracy", "--targets", "conv1", "--targets", "fc",
    ))  # fmt: skip
    assert code == 0, text
    made = flow.lora_network(place / "net.onnx", "cross_entropy", 4, targets=["conv1", "fc"],
                             lr=0.01, schedule="constant", on_device=True)  # fmt: skip
    trainer, arrays = made.trainer(), dict(np.load(place / "x.npz"))
    history = trainer.fit(arrays, 3, arrays, batch_size=SIZE, metrics=["accuracy"], progress=False)
    for name, value in adapter_of(trainer).parameters().items():
        np.testing.assert_array_equal(parameters(out)[name], value)
    found = json.loads(text[text.index("{") :])
    for name in ("loss", "val_loss", "val_accuracy"):
        np.testing.assert_allclose([e[name] for e in found["epochs"]], history[name], rtol=1e-6)
    steps = rows(out / "steps.csv")
    assert [r["rows"] for r in steps] == [6, 12, 18, 20, 26, 32, 38, 40, 46, 52, 58, 60]
    assert [r["step"] for r in steps if "val_loss" in r] == [2, 4, 6, 8, 10, 12]
    assert found["rows_per_second"] > 0


@pytest.mark.slow
def test_it_goes_on_bit_for_bit(place, tmp_path, monkeypatch):
    args = ["--epochs", 2, "--dropout", 0.2, "--accumulate", 2, "--every", 1]
    assert lora(*arguments(place, tmp_path / "whole", *args))[0] == 0
    with monkeypatch.context() as patch:
        interrupt_after(patch, RowLog, 5)
        code, text = lora(*arguments(place, tmp_path / "out", *args))
    assert (code, "interrupted after 2 steps; --resume" in text) == (130, True), text
    assert lora(*arguments(place, tmp_path / "out", *args, "--resume"))[0] == 0
    whole = parameters(tmp_path / "whole")
    for name, value in parameters(tmp_path / "out").items():
        np.testing.assert_array_equal(value, whole[name])
    other = dict(np.load(place / "x.npz"))
    other["images"] = other["images"] + 1
    np.savez(tmp_path / "other.npz", **other)
    again = arguments(place, tmp_path / "out", *args, "--resume", data=tmp_path / "other.npz")
    code, text = lora(*again)
    assert (code, "a training on other data" in text) == (1, True), text
    with monkeypatch.context() as patch:  # as one that is killed before its first checkpoint
        patch.setattr(RowLog, "on_fit_begin", failing)
        assert lora(*arguments(place, tmp_path / "out", *args, "--overwrite"))[0] == 1
    assert not (tmp_path / "out" / "checkpoint").exists()


def failing(*given):
    raise OSError(errno.EIO, "it ended here")


def paint(folder, count=4):
    """Pictures of one colour for each class, in subfolders."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(1)
    for number, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 60, (16, 12, 3), np.uint8)
            pixels[..., number] += 190
            image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


@pytest.mark.slow
def test_pictures_by_class(place, tmp_path):
    data, out = paint(tmp_path / "data"), tmp_path / "out"
    args = ["--epochs", 10, "--mean", "0.5", "--std", "0.25,0.25,0.25", "--metrics", "accuracy"]
    code, text = lora(*arguments(place, out, *args, data=data), "--lr", "0.03")
    assert code == 0, text
    assert (out / "labels.txt").read_text().split() == ["blue", "green", "red"]
    first, *_, last = rows(out / "loss.csv")
    assert last["loss"] < 0.95 * first["loss"]
    assert last["val_accuracy"] >= 1 / 3
    bad = tmp_path / "bad"
    (data / "red" / "0.png").write_bytes(b"no picture")
    code, text = lora(*arguments(place, bad, data=data))
    assert (code, "picture 9: no image that Pillow knows" in text) == (1, True), text
    other = paint(tmp_path / "other")
    (other / "red").rename(other / "yellow")
    code, text = lora(*arguments(place, bad, "--validation", other, data=paint(tmp_path / "more")))
    assert (code, "the classes blue, green, yellow" in text) == (1, True), text
    (tmp_path / "flat").mkdir()
    (other / "blue" / "0.png").rename(tmp_path / "flat" / "0.png")
    code, text = lora(*arguments(place, bad, data=tmp_path / "flat"))
    assert (code, "has pictures that are of no class" in text) == (1, True), text
    assert not bad.exists()


@pytest.mark.parametrize(
    ("changes", "args", "match"),
    [
        ({"labels": None}, (), "has no labels"),
        ({"more": np.zeros(ROWS)}, (), "has more, which the model does not take"),
        ({"labels": np.zeros(3, np.int64)}, (), "needs arrays of as many rows, it has images 20"),
        ({"images": np.zeros((ROWS, 3, 8, 8))}, (), "images"),
        ({"labels": np.full(ROWS, CLASSES)}, (), "labels"),
        ({}, ("--rank", "0"), "rank is 0"),
        ({}, ("--targets", "layer9"), "'layer9' matches no product"),
        ({}, ("--loss", "cross"), "did you mean"),
        ({}, ("--of", "scores"), "scores"),
        ({}, ("--mean", "1,2"), "write one number, or three"),
        ({}, ("--std", "0"), "write one number, or three"),
        ({}, ("--pack",), "--pack excludes --loss"),
        ({}, ("--sample", "hello"), "--sample excludes --loss"),
    ],
)
def test_what_does_not_fit_is_named(place, tmp_path, changes, args, match):
    arrays = {**np.load(place / "x.npz"), **changes}
    np.savez(tmp_path / "x.npz", **{n: a for n, a in arrays.items() if a is not None})
    code, text = lora(*arguments(place, tmp_path / "out", *args, data=tmp_path / "x.npz"))
    assert (code in (1, 2), match in text) == (True, True), text
    assert not (tmp_path / "out" / "adapter.onnx_adapter").exists()


def test_a_model_of_another_kind_is_told_so(place, tmp_path):
    data = tmp_path / "x.jsonl"
    data.write_text('{"text": "i am"}\n')
    code, text = lora(place / "net.onnx", "--data", data, "-o", tmp_path / "out")
    assert (code, "has no tokenizer.json" in text, "--loss" in text) == (1, True, True), text
    code, text = lora(place / "net.onnx", "--data", data, "-o", tmp_path / "out", "--metrics", "f1")
    assert (code, "--metrics is for --loss" in text) == (2, True), text
    code, text = lora(*arguments(place, tmp_path / "out", data=data))
    assert (code, "x.jsonl cannot be read" in text) == (1, True), text
    (tmp_path / "empty").mkdir()
    code, text = lora(*arguments(place, tmp_path / "out", data=tmp_path / "empty"))
    assert (code, "holds no images" in text) == (1, True), text
    assert not (tmp_path / "out").exists()


def write_sizes(place, path, *sizes):
    """Write the network with other sizes of its images; a text is a free one."""
    model = onnx.load(place / "net.onnx")
    for value in (*model.graph.input, *model.graph.output):
        for size, dim in zip(sizes, value.type.tensor_type.shape.dim, strict=False):
            if size != 3:
                setattr(dim, "dim_value" if isinstance(size, int) else "dim_param", size)
        sizes = sizes[:1]  # of the scores
    onnx.save(model, path)
    return path


def test_a_model_of_a_fixed_batch_leaves_out_rows_that_fill_none(place, tmp_path):
    out, model = tmp_path / "out", write_sizes(place, tmp_path / "fixed.onnx", SIZE, 3, 8, 8)
    args = [model, "--loss", "cross_entropy", "--data", place / "x.npz", "-o", out, "--json",
            "--rank", 4]  # fmt: skip
    few = tmp_path / "few.npz"
    np.savez(few, **{n: a[: SIZE - 1] for n, a in np.load(place / "x.npz").items()})
    code, text = lora(*args, "--validation", few)
    assert (code, "--validation has 5 rows, and the model takes 6" in text) == (1, True), text
    code, text = lora(*args, "--batch-size", 4)
    assert (code, "--batch-size is 4, and the model takes 6 rows" in text) == (1, True), text
    assert not out.exists()
    code, text = lora(*args, "--validation", place / "x.npz")
    assert code == 0, text
    assert [r["rows"] for r in rows(out / "steps.csv")] == [6, 12, 18]
    assert np.isfinite(rows(out / "loss.csv")[0]["val_loss"])


def test_memory_is_that_of_the_data_whatever_axes_are_called(place, tmp_path, monkeypatch):
    model = write_sizes(place, tmp_path / "free.onnx", "N", 3, "rows", "columns")
    images = np.zeros((ROWS, 3, 128, 64), np.float32)
    np.savez(tmp_path / "x.npz", images=images, labels=np.zeros(ROWS, np.int64))
    monkeypatch.setattr(training_memory, "free_bytes", lambda: 1000)
    code, text = lora(model, "--loss", "cross_entropy", "--data", tmp_path / "x.npz", "-o",
                      tmp_path / "out", "--batch-size", SIZE, "--rank", 4)  # fmt: skip
    found = re.search(r"a step at 6 N of 128 rows of 64 columns needs about (\d+) MiB", text)
    assert code == 1, text
    assert found, text
    assert int(found[1]) > 4  # the activations of the first layer alone have 1.1 MiB
