"""Real notebooks, run by a real kernel: cells changed and run again, short errors, pictures.

They need nbclient and ipykernel: ``make notebooks`` installs both in an environment of their own.
"""

import os
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="make notebooks installs it")
nbclient = pytest.importorskip("nbclient", reason="make notebooks installs it")
pytest.importorskip("ipykernel", reason="make notebooks installs it")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples" / "notebooks"
SETUP = """
import numpy as np
import flow2onnx as flow
import flow2onnx.typing as tp
x = np.ones((2, 4), np.float32)

def network(x, width=3):
    init = flow.random_uniform_initializer(0.1, 0.5)
    return flow.layers.dense(x, width, use_bias=False, kernel_initializer=init, name="w")
"""
TRAIN = """
@flow.global_function(type="train")
def train(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
    loss = flow.math.square(network(x, {width})) * {scale}
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.0])
    flow.optimizer.SGD(rate, momentum=0).minimize(loss)
    return loss

train(x).sum().item()
"""
PREDICT = """
@flow.global_function()
def predict(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
    return network(x)

predict(x).shape
"""
BROKEN = """
@flow.global_function()
def broken(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
    y = x * 2
    return {result}

broken(x)
"""


def run(notebook, **options):
    """Run a notebook with the packages that this process has."""
    paths = [str(ROOT), str(ROOT / "runtime" / "python"), *filter(None, sys.path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", **options)
    client.execute(env=environment)
    return notebook.cells


def outputs(cell):
    """What a cell shows: its value, its errors' lines, what it wrote, as one text."""
    found = []
    for output in cell.outputs:
        if output.output_type == "error":
            found += output.traceback
        else:
            found.append(output.get("text") or output.data.get("text/plain", ""))
    return "\n".join(found).strip()


class Elements(HTMLParser):
    """The names of the elements in HTML."""

    def __init__(self, text):
        super().__init__()
        self.names = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)


def test_cells_are_changed_and_run_again():
    texts = [
        SETUP, TRAIN.format(width=3, scale="1.0"), TRAIN.format(width=3, scale="4.0"), PREDICT,
        "train", TRAIN.format(width=5, scale="1.0"), "predict(x)",
        BROKEN.format(result="flow.matmul(y, y)"), BROKEN.format(result="undefined"),
        BROKEN.format(result="y").strip() + ".shape", "train(x).shape",
    ]  # fmt: skip
    new = nbformat.v4
    cells = [new.new_code_cell(text.strip()) for text in texts]
    run(new.new_notebook(cells=cells), allow_errors=True)
    _, first, scaled, predicted, shown, wide, stale, shape, name, mended, again = cells
    assert float(outputs(scaled)) == pytest.approx(4 * float(outputs(first)), rel=1e-5)
    assert outputs(predicted) == "(2, 3)"
    html = shown.outputs[0].data["text/html"]
    assert {"svg", "table"} <= Elements(html).names
    assert "script" not in Elements(html).names
    assert wide.outputs[0].text.count("\n") <= 2
    assert "w-weight is float32 (5, 4) now, it was float32 (3, 4)" in wide.outputs[0].text
    assert "define predict again" in outputs(stale)
    for cell in (stale, shape, name):
        (error,) = cell.outputs
        assert len("\n".join(error.traceback).split("\n")) <= 10
    assert "Cell In[8], line 4, in broken\n----> 4 return flow.matmul(y, y)" in outputs(shape)
    assert "NameError: name 'undefined' is not defined" in outputs(name)
    assert outputs(mended) == "(2, 4)"
    assert outputs(again) == "(2, 5)"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_examples(path, tmp_path):
    notebook = nbformat.read(path, 4)
    assert not [c for c in notebook.cells if c.get("outputs")], "examples are kept without results"
    cells = run(notebook, resources={"metadata": {"path": str(tmp_path)}})
    shown = [o for c in cells for o in c.get("outputs", ())]
    warnings = [o.text for o in shown if o.output_type == "stream" and o.name == "stderr"]
    assert not [text for text in warnings if not text.startswith("load_mnist: using")]
    pictures = [o for o in shown if "<svg" in o.get("data", {}).get("text/html", "")]
    assert len(pictures) >= 2
    if os.environ.get("SCREENSHOTS"):
        nbformat.write(notebook, Path(os.environ["SCREENSHOTS"]) / path.name)
