"""Stub files, from which editors and type checkers know the names below `flow`."""

import re
import subprocess
import sys

import flow2onnx_runtime
import pytest

from flow2onnx.api.surface import MIRRORS, NAMES, ON_DEMAND
from tests.stubs import PACKAGE, stubs

ROOT = PACKAGE.parent
USE = """
import flow2onnx as flow
import flow2onnx.typing as tp
from typing import Annotated
from flow2onnx.nn import relu

reveal_type(flow.layers.dense)
reveal_type(flow.optimizer.named("sgd").minimize)
reveal_type(flow.float32)
reveal_type(flow.make_trainable)
reveal_type(flow.experimental.nn.relu)
reveal_type(flow.data.load_mnist)

@flow.global_function(type="train")
def job(x: Annotated[flow.Blob, tp.Numpy.Placeholder((2, 3))]) -> tp.Numpy:
    reveal_type(x[0] @ x.T + 1)
    return relu(x)

reveal_type(job)
with flow.scope.namespace("a"), flow.experimental.scope.namespace("b"):
    reveal_type(flow.math.add(1, flow.nn.LSTM(flow.constant(1), 2)[1][0]))
flow.layers.dense(1)
flow.nonsense
"""


def test_stubs_are_those_of_the_names():
    made = stubs()
    written = {p.relative_to(PACKAGE): p.read_text(encoding="utf-8")
               for p in PACKAGE.rglob("*.pyi")}  # fmt: skip
    assert sorted(written) == sorted(made)
    stale = [str(path) for path, text in made.items() if written[path] != text]
    assert stale == [], "run python -m tests.stubs"


def mypy(*arguments):
    command = [sys.executable, "-m", "mypy", "--strict", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
def test_type_checkers_know_every_name(tmp_path):
    late = [n for names in ON_DEMAND.values() for n in names]
    names = [f"flow.{n}" for n in sorted({*NAMES, *MIRRORS, *late})]
    names += [f"flow2onnx_runtime.{n}" for n in flow2onnx_runtime.__all__]
    use = tmp_path / "every.py"
    head = "import flow2onnx as flow\nimport flow2onnx.typing\nimport flow2onnx_runtime\n"
    use.write_text(head + "".join(f"reveal_type({n})\n" for n in names))
    text = mypy("--no-incremental", use)
    assert ": error:" not in text, text
    shown = re.findall(r'Revealed type is "(.*)"', text)
    assert len(shown) == len(names), text
    assert [n for n, s in zip(names, shown, strict=True) if s == "Any"] == []


@pytest.mark.slow
def test_type_checkers_know_the_names(tmp_path):
    use = tmp_path / "use.py"
    use.write_text(USE)
    text = mypy("--no-incremental", use)
    for known in (
        "inputs: ", "units: int", "def (loss: ", "dtypes.DType", "trainable.Trainable",
        "-> flow2onnx.trace.blob.Blob", "url: ", 'Revealed type is "flow2onnx.trace.blob.Blob"',
        'Revealed type is "flow2onnx.api.job.JobFunction"', 'Missing positional argument "units"',
        'has no attribute "nonsense"',
    ):  # fmt: skip
        assert known in text, text
    assert text.count(": error:") == 3, text  # two of dense, one of the name
