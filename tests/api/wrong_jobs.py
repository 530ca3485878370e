"""Wrong programs by class, each with what it is told: `docs/errors.md` is written from them.

python -m tests.api.wrong_jobs writes the page; `test_wrong_jobs.py` compares it, and each message
with what it has to name.
"""

import contextlib
import io
import os
import re
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

import flow2onnx as flow
from flow2onnx.cli.app import app
from flow2onnx.compile.opsets import newest_opset
from flow2onnx.errors import FlowError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"

_HEAD = """\
import numpy as np
import flow2onnx as flow
import flow2onnx.typing as tp
"""
_PREDICT = """

@flow.global_function()
def job(x: tp.Numpy.Placeholder((4, 3)), i: tp.Numpy.Placeholder((4,), flow.int32)) -> tp.Numpy:
    return {}


job(np.ones((4, 3), np.float32), np.zeros(4, np.int32))
"""
_TRAIN = """

@flow.global_function(type="train")
def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    loss = flow.layers.dense(x, 2, name="fc")
    {}
    return loss


job(np.ones((4, 3), np.float32))
"""
_CALL = """

@flow.global_function()
def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    return x * 2


{}
"""
_CONFIG = """
config = flow.function_config()
{}


@flow.global_function("predict", config)
def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    return x * 2


job(np.ones((4, 3), np.float32))
"""
_PLACEHOLDER = """

@flow.global_function()
def job({}) -> tp.Numpy:
    return x


job(np.ones((4, 3), np.float32))
"""
_EXPORT = """

@flow.global_function(type="train")
def train_job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    loss = flow.layers.dense(x, 2, name="fc")
    flow.optimizer.SGD(0.1).minimize(loss)
    return loss


@flow.global_function()
def predict_job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    return flow.layers.dense(x, 2, name="fc")


{}
"""
_PLAIN = """
{}
"""
SCRIPT = _HEAD + _EXPORT.format("").rstrip() + "\n"


@dataclass(frozen=True)
class Wrong:
    """A wrong line in a program, and words that its message has: what was asked, what was got."""

    program: str
    line: str
    says: tuple[str, ...]
    at: str = ""  # a piece of the line that the message points at, where it is another one

    @property
    def text(self) -> str:
        """The whole program."""
        return _HEAD + self.program.format(self.line)


@dataclass(frozen=True)
class Told:
    """The words that a user reads: the error as it is printed, its hint, and the line it names."""

    message: str
    hint: str | None
    line: str | None


def _wrong(program: str, *rows: tuple[str, ...]) -> list[Wrong]:
    return [Wrong(program, line, tuple(says)) for line, *says in rows]


WRONG: dict[str, list[Wrong]] = {
    "Shapes": _wrong(
        _PREDICT,
        ("flow.matmul(x, x)", "(4, 3)", "inner dimensions"),
        ("x @ x", "(4, 3)", "transpose"),
        ("flow.reshape(x, [5, 5])", "(4, 3)", "(5, 5)"),
        ("x + np.ones(5, np.float32)", "(4, 3)", "(5,)"),
        ("flow.concat([x, flow.transpose(x, [1, 0])], 0)", "(4, 3)", "(3, 4)"),
        ("flow.math.add_n([x, flow.transpose(x, [1, 0])])", "one shape", "(3, 4)"),
        ("flow.nn.conv2d(x, 3, 1, 'SAME')", "conv2d"),
        ("flow.nn.softmax_cross_entropy_with_logits(x, flow.transpose(x, [1, 0]))", "(3, 4)"),
        ("flow.math.reduce_sum(x, axis=2)", "axis 2"),
        ("flow.squeeze(x, [0])", "must be 1", "4"),
        ("flow.slice(x, [0, 0], [9, 9])", "9"),
        ("x[1:1]", "empty"),
    ),
    "Element types": _wrong(
        _PREDICT,
        ("x + i", "float32", "int32"),
        ("flow.matmul(x, flow.cast(flow.transpose(x, [1, 0]), flow.float64))", "float64"),
        ("flow.gather(x, x)", "float32"),
        ("flow.cast(x, 'flaot32')", "flaot32", "float32"),
        ("flow.cast(x, bool)", "bool", "flow.int8"),
        ("flow.nn.sparse_softmax_cross_entropy_with_logits(x, x)", "labels"),
        ("x & x", "float32", "compare first"),
        ("i + np.array([0.5])", "fractions"),
        ("x + np.array(['a', 'b', 'c'])", "a"),
    ),
    "Names": [
        *_wrong(
            _PREDICT,
            ("flow.nn.Linear(3, 2)(x)", "Linear", "flow.layers.dense"),
            ("flow.layers.densse(x, 2)", "densse", "flow.layers.dense"),
            ("flow.softmax(x)", "softmax", "flow.nn.softmax"),
            ("flow.math.einsum('ij->ji', x)", "einsum", "flow.matmul"),
            ("x.unsqueeze(0)", "unsqueeze", "flow.expand_dims"),
            ("x.numpy()", "numpy", "return the blob"),
            ("flow.layers.dense(x, 2, activation='rleu')", "rleu", "relu"),
            ("flow.layers.dense(x, 2, kernel_initializer='gaussian')", "gaussian", "there are"),
            ("flow.layers.dense(x, 2, kernel_regularizer='l3')", "l3"),
            ("flow.layers.dense(flow.layers.dense(x, 2), 2)", "Dense-weight", "name="),
            ("flow.nn.relu(flow.nn.relu(x, name='r'), name='r')", "r already exist"),
        ),
    ],
    "Arguments": _wrong(
        _PREDICT,
        ("flow.nn.relu('x')", "a blob", "'x'"),
        ("flow.nn.relu(x, y=1)", "y"),
        ("flow.nn.dropout(x, rate=2.0)", "2.0", "[0, 1)"),
        ("flow.layers.dense(x, 'two')", "two"),
        ("flow.layers.dense(x, 2, activation=3)", "activation is 3", "flow.nn.relu"),
        ("flow.layers.dense(x, 2, kernel_initializer=0.1)", "initializer", "0.1"),
        ("flow.math.clip_by_value(x)", "min_value"),
        ("flow.math.add_n([])", "at least one"),
        ("flow.get_variable('w', 3)", "w has 3", "(n,)"),
        ("flow.unpack(x, 3)", "3 equal pieces", "(4, 3)"),
        ("x[5]", "position 5", "(4, 3)"),
        ("x[0.5]", "0.5"),
    ),
    "Control flow on blobs": _wrong(
        _PREDICT,
        ("x if x > 0 else -x", "`if`", "flow.where"),
        ("x and -x", "`and`", "flow.where"),
        ("max(x, -x)", "`max()`", "flow.math.maximum"),
        ("sorted([x, -x])", "sorted()", "flow.math.maximum"),
        ("x * int(x)", "int()", "flow.cast"),
        ("x * float(x)", "float()", "return the blob"),
        ("[x for _ in range(i)]", "position or a count", "x.shape[0]"),
        ("1.0 in x", "`in`", "flow.math.reduce_any"),
        ("np.mean(x)", "numpy.mean", "x.mean"),
        ("x[x > 0]", "int8", "flow.argwhere"),
    ),
    "Calls of a job": [
        *_wrong(
            _CALL,
            ("job()", "1 arguments are declared (x)", "0 were passed"),
            ("job(np.ones((3, 4), np.float32))", "(4, 3) is declared", "(3, 4) was passed"),
            ("job(np.ones((4, 3)))", "float32 is declared", "float64", "astype('float32')"),
            ("job([[1.0] * 3] * 4)", "numpy.ndarray", "list"),
            ("job(np.full((4, 3), 'a'))", "<U1", "numpy.unique"),
            ("job(y=np.ones((4, 3), np.float32))", "'y'", "x"),
            ("job(np.array([[1], [2, 3]], dtype=object))", "(4, 3)", "(2,)"),
            ("flow.nn.relu(np.ones(3))", "only inside a job function", "flow.global_function"),
        ),
    ],
    "Placeholders and results": [
        *_wrong(
            _PLACEHOLDER,
            ("x: tp.Numpy.Placeholder([4, 3])", "tuple", "[4, 3]"),
            ("x: tp.Numpy.Placeholder((4, -1))", "above 0", "-1"),
            ("x: tp.Numpy.Placeholder((4, 3), 'string')", "'string'", "float32"),
        ),
        *(
            Wrong(_PLACEHOLDER, line, tuple(says), "@flow.global_function")
            for line, *says in (("x: int", "int"), ("*x: tp.Numpy.Placeholder((4, 3))", "*args"))
        ),
        Wrong(_PREDICT, "3", ("int", "operators"), "@flow.global_function"),
        Wrong(_PREDICT, "(x, x)", ("tuple", "typing.Tuple"), "@flow.global_function"),
    ],
    "Optimizers": _wrong(
        _TRAIN,
        ("flow.optimizer.SGD(-0.1).minimize(loss)", "at least 0", "-0.1"),
        ("flow.optimizer.SGD('0.1').minimize(loss)", "'0.1'", "a function of the step"),
        ("flow.optimizer.SGD(0.1, momentum=-1).minimize(loss)", "momentum is -1"),
        ("flow.optimizer.Adam(0.1, beta1=2).minimize(loss)", "beta1 is 2", "below 1"),
        ("flow.optimizer.Ftrl(0.1).minimize(loss)", "Ftrl", "flow.optimizer"),
        ("flow.optimizer.SGD(0.1, variables=['w']).minimize(loss)", "['w']", "fc-weight"),
        ("flow.optimizer.SGD(0.1, grad_clipping=1.0).minimize(loss)", "1.0", "by_global_norm"),
        ("flow.optimizer.SGD(0.1).minimize(flow.cast(loss, flow.int32))", "real", "int32"),
        ("flow.optimizer.SGD(0.1).minimize(3.0)", "a loss is a blob", "3.0"),
        ("flow.optimizer.CosineScheduler(0.1, 0)", "steps", "0"),
        ("flow.optimizer.PiecewiseConstantScheduler([10], [0.1])", "2 values", "got 1"),
        ("flow.optimizer.named('adm(lr=0.1)').minimize(loss)", "adm", "adam"),
    ),
    "Flags": [
        *_wrong(
            _CONFIG,
            ("config.enable_inplce(True)", "enable_inplce", "enable_inplace"),
            ("config.enable_inplace('yes')", "True or False", "'yes'"),
            ("config.learning_rate(0.1)", "learning_rate", "flow.optimizer.SGD"),
            ("config.concurrency_width(0)", "from 1", "0"),
            ("config.default_data_type('real')", "element type", "'real'"),
            ("config.train.model_update_conf({})", "needs one of"),
            ("flow.config.gpu_device_num('all')", "int", "'all'"),
            ("config.runtime.session_entry('threads', 1)", "str", "1"),
        ),
        Wrong(
            _CONFIG,
            "config.enable_inplace(False); config.runtime.in_place(True)",
            ("enable_inplace(False) with runtime.in_place(True)", "set one of them"),
        ),
    ],
    "Exports and files": _wrong(
        _EXPORT,
        ("predict_job.export('bundle', on_device=True)", "predict job", "train jobs"),
        ("train_job.export('b', precision='int8')", "train job", "predict_job"),
        ("train_job.export('step.onnx')", "step.onnx", "folder"),
        ("predict_job.export('model')", "model", ".onnx"),
        ("predict_job.export('m.onnx', dynamic_bach=True)", "dynamic_bach", "dynamic_batch"),
        ("predict_job.export('m.onnx', precision='int4')", "'int4'", "int8"),
        ("predict_job.export('m.onnx', precision='int8')", "calibration", "int8-dynamic"),
        ("predict_job.export('m.onnx', opset=3)", "3"),
        ("flow.load_variables({'fc-wieght': np.ones((2, 3), np.float32)})", "fc-wieght"),
        ("flow.checkpoint.get('nowhere')", "nowhere"),
    ),
    "Imported models": _wrong(
        _PLAIN,
        ("flow.make_trainable('nowhere.onnx', 'mse')", "nowhere.onnx"),
        ("flow.grad(np.ones(3))", "ndarray"),
        ("flow.make_trainable('damaged.onnx', 'mse')", "damaged.onnx"),
    ),
}
# Commands, whose messages name the option or the file, and no line.
COMMANDS: list[tuple[str, tuple[str, ...]]] = [
    ("export train.py:job -o m.onnx", ("no job is named job", "train_job, predict_job")),
    ("export trane.py:train_job -o b", ("trane.py does not exist", "did you mean train.py")),
    ("export train.py:predict_job --on-device b", ("--on-device is for train jobs",)),
    ("export train.py:train_job -o b --precision int8-dynamic", ("--precision is for predict",)),
    ("export train.py:predict_job -o m.onnx --on-device b", ("give one of -o OUT",)),
    ("export train.py:predict_job -o m.onnx --calibration x.npz", ("x.npz cannot be read",)),
    ("export train.py:predict_job", ("give one of -o OUT",)),
    ("info empty", ("empty is an empty folder", "a bundle or a checkpoint")),
    ("info nowhere", ("nowhere is not there", "an .onnx file")),
    ("run --api 9.9 train.py", ("9.9 is not a release", "0.0 to 0.9")),
    ("run nowhere.py", ("nowhere.py does not exist",)),
    ("tune train.py:train_job --emit a --cache b", ("--emit excludes --cache",)),
    ("flags enable_inplce", ("enable_inplce", "did you mean enable_inplace")),
    ("symbols nn.conv2e", ("nn.conv2e", "did you mean nn.conv2d")),
    ("make-trainable damaged.onnx --loss mse -o b", ("damaged.onnx",)),
]


def told(wrong: Wrong) -> Told | None:
    """The error of the program, run as job.py of an empty folder; None if it runs."""
    flow.clear_default_session()
    with _folder() as place:
        (place / "job.py").write_text(wrong.text, encoding="utf-8")
        try:
            exec(compile(wrong.text, str(place / "job.py"), "exec"), {"__name__": "__main__"})
        except FlowError as error:
            return _told(error, wrong)
    return None


def _told(error: FlowError, wrong: Wrong) -> Told:
    """The message, and the line that it names or else that its traceback ends in."""
    frames = traceback.extract_tb(error.__traceback__)
    numbers = [f.lineno for f in frames if f.filename.endswith("job.py")]
    name, _, number = (error.source or "").rpartition(":")
    found = int(number) if name == "job.py" else numbers[-1]
    line = wrong.text.splitlines()[found - 1] if found else None
    return Told(f"{type(error).__name__}: {error}", error.hint, line)


def told_on_the_command_line(arguments: str) -> str:
    """The output of a command, run beside train.py and a damaged model."""
    flow.clear_default_session()
    with _folder() as place:
        (place / "train.py").write_text(SCRIPT, encoding="utf-8")
        result = CliRunner().invoke(app, arguments.split(), prog_name="flow2onnx")
    lines = [line.rstrip() for line in result.stderr.splitlines() if line.strip()]
    own = [n for n, line in enumerate(lines) if "Error" in line]
    return "\n".join(lines[own[0] :]) if result.exit_code and own else ""


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A working folder with an empty folder and a file that is no model."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
        place = Path(name).resolve()
        (place / "empty").mkdir()
        (place / "damaged.onnx").write_bytes(b"no model")
        os.chdir(place)
        try:
            yield place
        finally:
            os.chdir(before)


def page() -> str:
    """The page of all wrong programs and commands, in Markdown."""
    count = sum(map(len, WRONG.values())) + len(COMMANDS)
    lines = [
        "# What errors say", "",
        "<!-- Written by `python -m tests.api.wrong_jobs`; a test compares it. -->", "",
        f"{count} wrong programs and commands, by class: the wrong line, and what is printed for "
        "it. A message says what was asked, what was got, what to do, and where.", "",
    ]  # fmt: skip
    for title, rows in WRONG.items():
        lines += [f"## {title}", ""]
        for wrong in rows:
            found = told(wrong)
            lines += [*_block(wrong.line, found.message if found else "")]
    lines += ["## Commands", ""]
    for arguments, _ in COMMANDS:
        lines += _block(f"$ flow2onnx {arguments}", told_on_the_command_line(arguments))
    return "\n".join(lines)


def _block(code: str, message: str) -> list[str]:
    text = re.sub(r"0x[0-9a-f]+", "0x…", message)
    text = text.replace(f" to {newest_opset()};", " to …;")  # which the installed runtime decides
    return ["```text", code, "", *text.splitlines(), "```", ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
