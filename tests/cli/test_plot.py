"""`flow2onnx plot`: curves of runs, from the files that trainings write."""

from xml.etree import ElementTree

import pytest
from flow2onnx_runtime import History
from flow2onnx_runtime.event_files import ScalarWriter

from flow2onnx.data.runs import read_run

ROWS = [
    {"epoch": 1, "step": 4, "loss": 0.75, "val_loss": 1.0, "accuracy": 0.25},
    {"epoch": 2, "step": 8, "loss": 0.5, "val_loss": 0.875},
    {"epoch": 3, "step": 12, "loss": float("nan"), "val_loss": 0.5, "accuracy": 0.75},
]


@pytest.fixture
def runs(folder):
    History(ROWS).save("first.csv")
    (folder / "second").mkdir()
    History([{**row, "loss": 2 * row["loss"]} for row in ROWS]).save("second/loss.csv")
    (folder / "second" / "steps.csv").write_text("step,loss\n1,9\n")
    with ScalarWriter(folder / "events") as writer:
        for step in (1, 2, 3):
            writer.scalar("loss", 1 / step, step)
            writer.scalar("epoch/lr", 0.1, step)
    return folder


def test_runs_are_read(runs):
    assert read_run("first.csv")["val_loss"] == [1.0, 0.875, 0.5]
    assert len(read_run("second")) == 3
    assert read_run("events")["loss"] == pytest.approx([1, 1 / 2, 1 / 3])
    assert read_run("events").columns == ("step", "loss", "epoch/lr")


def test_two_runs_in_one_picture(flow2onnx, runs):
    result = flow2onnx("plot", "first.csv", "second", "-o", "curves.svg")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "curves.svg: loss, accuracy of first.csv, second\n"
    assert ElementTree.parse("curves.svg").getroot().tag.endswith("svg")


def test_a_picture_of_dots(flow2onnx, runs):
    assert flow2onnx("plot", "events", "first.csv", "--curve", "loss").exit_code == 0
    assert (runs / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_lines_of_text(flow2onnx, runs):
    result = flow2onnx("plot", "first.csv", "events", "--curve", "loss", "--terminal")
    assert result.exit_code == 0, result.stderr
    assert "  ● first.csv: 0.5" in result.stdout
    assert "  ○ first.csv, validation: 0.5" in result.stdout
    assert "  ◆ events: 0.3333" in result.stdout
    assert not (runs / "curves.png").exists()


def test_one_point_is_a_curve(flow2onnx, folder):
    History([{"epoch": 1, "loss": 0.5}]).save("one.csv")
    assert "● one.csv: 0.5" in flow2onnx("plot", "one.csv", "--terminal").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.csv"], "there is no such run"),
        (["empty.csv"], "is empty"),
        (["head.csv"], "has no rows"),
        (["words.csv"], "line 2: 'b' is no number"),
        (["short.csv"], "line 3: has 1 numbers, of 2 columns"),
        (["bytes.csv"], "is no CSV file"),
        (["nothing"], "holds neither a CSV file nor events"),
        (["cut"], "the record is cut off"),
        (["first.csv", "--curve", "los"], "did you mean loss?"),
        (["first.csv", "-o", "curves.txt"], "curves.txt is no .png, .svg or .pdf"),
        (["first.csv", "--over", "hours"], "not every run has the column hours"),
    ],
)
def test_bad_runs_in_words(flow2onnx, runs, arguments, words):
    (runs / "empty.csv").write_text("")
    (runs / "head.csv").write_text("epoch,loss\n")
    (runs / "words.csv").write_text("epoch,loss\na,b\n".replace("a", "1"))
    (runs / "short.csv").write_text("epoch,loss\n1,2\n2\n")
    (runs / "bytes.csv").write_bytes(bytes(range(128, 256)))
    (runs / "nothing").mkdir()
    (runs / "cut").mkdir()
    whole = next((runs / "events").iterdir()).read_bytes()
    (runs / "cut" / "events.out.tfevents.1").write_bytes(whole[:-3])
    result = flow2onnx("plot", *arguments)
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())


def test_names_are_no_formulas(flow2onnx, folder):
    (folder / "$\\frac{1}$.csv").write_text("epoch,$\\bad{$,_hidden\n1,2,3\n2,3,4\n")
    result = flow2onnx("plot", "$\\frac{1}$.csv", "-o", "curves.svg")
    assert result.exit_code == 0, result.output
