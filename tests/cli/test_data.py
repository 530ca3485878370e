"""`flow2onnx data`."""

import importlib
import io
import json

import numpy as np
import pytest
from rich.console import Console

from flow2onnx.data import build as building
from flow2onnx.data.build import array_source, build
from flow2onnx.data.ofrecord import read_records
from flow2onnx.data.shards import Parts
from flow2onnx.errors import ArgumentError, DataError
from tests.data.files import numbered, photo, png, write_parts


@pytest.fixture
def photos(folder):
    for name, count in (("cat", 3), ("ant", 2)):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(count):
            (folder / "photos" / name / f"{i}.png").write_bytes(png(photo(i)))
    (folder / "photos" / "readme.txt").write_text("no image")
    return "photos"


def records(path="out", parts=1):
    return list(Parts(path, parts, suffix_length=5).epoch(0))


def test_a_folder_of_images(flow2onnx, photos, folder):
    done = flow2onnx("data", "build", photos, "-o", "out", "--parts", 2)
    assert done.exit_code == 0, done.output
    assert "out: 5 records in 2 files" in done.output
    assert sorted(p.name for p in (folder / "out").iterdir()) == [
        "labels.txt",
        "part-00000",
        "part-00001",
    ]
    assert (folder / "out" / "labels.txt").read_text() == "ant\ncat\n"
    found = records(parts=2)
    assert [int(r.feature("class/label").values[0]) for r in found] == [0, 0, 1, 1, 1]
    assert found[4].feature("encoded").values == (png(photo(2)),)


def test_a_folder_without_classes(flow2onnx, photos, folder):
    done = flow2onnx(
        "data",
        "build",
        f"{photos}/cat",
        "-o",
        "out",
        "--image-feature",
        "im",
        "--json",
        "--check-images",
        "--shuffle",
    )
    facts = json.loads(done.output)
    assert (facts["records"], facts["labels"]) == (3, [])
    assert facts["files"][0]["size"] == (folder / "out" / "part-00000").stat().st_size
    assert {r.names() for r in records()} == {("im",)}


def test_arrays(flow2onnx, folder):
    arrays = {
        "x": np.arange(12, dtype=np.float64).reshape(3, 2, 2),
        "y": np.uint8([1, 200, 3]),
        "h": np.float16([1, 2, 3]),
        "flag": np.array([True, False, True]),
    }
    np.savez(folder / "a.npz", **arrays)
    assert flow2onnx("data", "build", "a.npz", "-o", "out").exit_code == 0
    found = records()
    kinds = {n: f.kind for n, f in found[0].features().items()}
    assert kinds == {"x": "double", "y": "int32", "h": "float", "flag": "int32"}
    for name, array in arrays.items():
        rows = [r.feature(name).values for r in found]
        np.testing.assert_array_equal(rows, array.reshape(3, -1))


def test_one_array_in_random_order(flow2onnx, folder):
    np.save(folder / "n.npy", np.arange(20))
    assert flow2onnx("data", "build", "n.npy", "-o", "out", "--shuffle", "--seed", 3).exit_code == 0
    found = [int(r.feature("n").values[0]) for r in records()]
    assert found != list(range(20))
    assert sorted(found) == list(range(20))


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"a": np.zeros(2), "b": np.zeros(3)}, "the same number of rows"),
        ({"a": np.zeros(0)}, "rows"),
        ({"a": np.array(["x"])}, "array a is <U1"),
        ({"a": np.uint64([1])}, "is uint64"),
        ({"a": np.float32(1)}, "array a is float32 of shape ()"),
    ],
)
def test_arrays_that_make_no_records(flow2onnx, folder, arrays, text):
    np.savez(folder / "a.npz", **arrays)
    done = flow2onnx("data", "build", "a.npz", "-o", "out")
    assert done.exit_code != 0
    assert text in done.output
    assert not (folder / "out").exists()


def test_what_is_no_source(flow2onnx, folder):
    (folder / "empty").mkdir()
    assert "empty holds no images" in flow2onnx("data", "build", "empty", "-o", "out").output
    (folder / "a.npz").write_bytes(b"abc")
    assert "no arrays that numpy reads" in flow2onnx("data", "build", "a.npz", "-o", "out").output
    np.save(folder / "n.npy", np.arange(2))
    done = flow2onnx("data", "build", "n.npy", "-o", "out", "--parts", 3)
    assert "2 records do not make 3 parts" in done.output
    assert sorted(p.name for p in folder.iterdir()) == ["a.npz", "empty", "n.npy"]


def test_whole_or_nothing(flow2onnx, photos, folder):
    (folder / photos / "cat" / "9.png").write_bytes(b"no image")
    done = flow2onnx("data", "build", photos, "-o", "out", "--check-images")
    assert done.exit_code != 0
    assert "9.png: no image that Pillow knows" in done.output
    assert [p.name for p in folder.iterdir()] == [photos]


def test_an_earlier_folder(flow2onnx, folder):
    np.save(folder / "n.npy", np.arange(6))
    assert flow2onnx("data", "build", "n.npy", "-o", "out", "--parts", 3).exit_code == 0
    assert "out is there already" in flow2onnx("data", "build", "n.npy", "-o", "out").output
    assert flow2onnx("data", "build", "n.npy", "-o", "out", "--overwrite").exit_code == 0
    assert [p.name for p in (folder / "out").iterdir()] == ["part-00000"]
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("keep")
    done = flow2onnx("data", "build", "n.npy", "-o", "mine", "--overwrite")
    assert "mine holds other things" in done.output
    (folder / "mine" / "part-0").write_bytes(b"")
    done = flow2onnx("data", "build", "n.npy", "-o", "mine", "--overwrite")
    assert "mine holds other things" in done.output
    assert (folder / "mine" / "thesis.txt").read_text() == "keep"


def test_a_failure_keeps_the_earlier_folder(folder):
    np.save(folder / "n.npy", np.arange(6))
    source = array_source("n.npy")
    build(source, "out")

    def fail(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(source, "out", overwrite=True, parts=2, progress=fail)
    assert [p.name for p in (folder / "out").iterdir()] == ["part-00000"]
    assert sorted(p.name for p in folder.iterdir()) == ["n.npy", "out"]


def test_show(flow2onnx, photos):
    flow2onnx("data", "build", photos, "-o", "out")
    done = flow2onnx("data", "show", "out", "--records", 2)
    assert "out/part-00000, record 1 at byte" in done.output
    assert "class/label" in done.output
    assert f"{len(png(photo(0)))} bytes" in done.output
    facts = json.loads(flow2onnx("data", "show", "out/part-00000", "--json").output)
    assert facts["records"][0]["features"]["class/label"] == {
        "kind": "int32",
        "count": 1,
        "first": [0],
    }
    assert "holds no files of-0" in flow2onnx("data", "show", "out", "--prefix", "of-").output


def test_check(flow2onnx, photos, folder):
    flow2onnx("data", "build", photos, "-o", "out", "--parts", 2)
    done = flow2onnx("data", "check", "out", "--image", "encoded")
    assert done.exit_code == 0
    assert "all records are whole" in done.output
    part = folder / "out" / "part-00001"
    part.write_bytes(part.read_bytes()[:-5])
    done = flow2onnx("data", "check", "out", "--json")
    facts = json.loads(done.output)
    assert (done.exit_code, facts["ok"]) == (1, False)
    assert [f["ok"] for f in facts["files"]] == [True, False]
    assert facts["files"][0]["features"] == {"class/label (int32)": 3, "encoded (bytes)": 3}
    assert "part-00001, record 1, byte " in facts["files"][1]["problem"]
    assert "damaged" in flow2onnx("data", "check", "out").output


def test_check_of_images(flow2onnx, folder):
    write_parts(folder / "d", [[{"encoded": b"none"}], numbered(1)])
    facts = json.loads(flow2onnx("data", "check", "d", "--image", "encoded", "--json").output)
    assert "no image that Pillow knows" in facts["files"][0]["problem"]
    assert "there is no feature 'encoded'" in facts["files"][1]["problem"]


def test_a_bar_on_a_terminal(flow2onnx, folder, monkeypatch):
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=80)
    commands = importlib.import_module("flow2onnx.cli.commands.data")
    monkeypatch.setattr(commands, "output", lambda **options: terminal)
    np.save(folder / "n.npy", np.arange(6))
    assert flow2onnx("data", "build", "n.npy", "-o", "out").exit_code == 0
    assert "Writing" in written.getvalue()
    assert "6/6" in written.getvalue()


def test_public_functions(folder):
    path = write_parts(folder / "d", [numbered(2)])
    assert building.files_of(f"{path}/part-0")[0].name == "part-0"
    assert building.check_file(building.files_of(path)[0]).ok
    with pytest.raises(ArgumentError, match="holds no files"):
        building.files_of(folder)
    with pytest.raises(DataError):
        list(read_records(folder))
