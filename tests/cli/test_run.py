"""`flow2onnx run`: scripts behave as under `python`, except that `oneflow` is there."""

import logging
import sys
import warnings

import numpy as np
import pytest
from flow2onnx_runtime.provider_checks import opens
from flow2onnx_runtime.providers import PROVIDERS

from flow2onnx.engine.session import current_session

JOB = """
import numpy as np
{imports}

@flow.global_function(type="predict")
def double(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
    return flow.math.add(x, x)

print(double(np.ones((2, 3), np.float32)).sum())
"""

TRAIN = """
import numpy as np
import oneflow as flow
import oneflow.typing as tp

@flow.global_function(type="train")
def train_job(x: tp.Numpy.Placeholder((4, 3))) -> {returns}:
    w = flow.get_variable("w", (3, 1), initializer=flow.random_uniform_initializer())
    loss = flow.math.square(flow.matmul(x, w))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0).minimize(loss)
    return loss

x = np.ones((4, 3), np.float32)
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import oneflow as flow\nimport oneflow.typing as tp",
        "import oneflow as flow\nfrom oneflow import typing as tp",
        "from oneflow.compatible import single_client as flow\n"
        "from oneflow.compatible.single_client import typing as tp",
        "import oneflow.compatible.single_client as flow\n"
        "import oneflow.compatible.single_client.typing as tp",
        "import oneflow.python as flow\nimport oneflow.python.framework.typing as tp",
        "import flow2onnx as flow\nimport flow2onnx.typing as tp",
    ],
)
def test_every_spelling_of_the_import(flow2onnx, script, imports):
    result = flow2onnx("run", script(JOB.format(imports=imports)))
    assert result.stderr == ""
    assert (result.stdout, result.exit_code) == ("12.0\n", 0)


def test_a_script_without_oneflow(flow2onnx, script):
    result = flow2onnx("run", script("print(__name__, __file__.endswith('train.py'))"))
    assert (result.stdout, result.exit_code) == ("__main__ True\n", 0)


def test_the_script_has_its_own_arguments(flow2onnx, script):
    path = script("import sys; print(sys.argv)")
    result = flow2onnx("run", "--seed", 3, path, "--seed", "7", "-h", "--", "x")
    assert result.stdout == "['train.py', '--seed', '7', '-h', '--', 'x']\n"


def test_a_program_of_several_files(flow2onnx, script):
    script("from .sizes import WIDTH", "network/__init__.py")
    script("WIDTH = 4", "network/sizes.py")
    script("import oneflow as flow\ndef f(x): return flow.math.relu(x)", "layers.py")
    path = script(
        """
        import numpy as np, oneflow as flow, oneflow.typing as tp
        import layers
        from network import WIDTH

        @flow.global_function()
        def job(x: tp.Numpy.Placeholder((WIDTH,))) -> tp.Numpy:
            return layers.f(x)

        if __name__ == "__main__":
            print(job(np.full(4, -1, np.float32)).sum())
        """
    )
    assert flow2onnx("run", path).stdout == "0.0\n"


def test_a_script_in_another_folder_finds_its_neighbours(flow2onnx, script):
    script("X = 5", "far/neighbour.py")
    result = flow2onnx("run", script("import neighbour; print(neighbour.X)", "far/train.py"))
    assert result.stdout == "5\n"


def test_a_dataclass_of_the_script_finds_its_module(flow2onnx, script):
    path = script(
        """
        from __future__ import annotations
        import dataclasses, typing

        @dataclasses.dataclass
        class Options:
            rate: typing.ClassVar[float] = 1.0

        print(len(dataclasses.fields(Options)))
        """
    )
    assert flow2onnx("run", path).stdout == "0\n"


@pytest.mark.parametrize(
    ("leave", "code", "message"),
    [("sys.exit()", 0, ""), ("sys.exit(3)", 3, ""), ("sys.exit('why')", 1, "why\n")],
)
def test_exit_codes(process, script, leave, code, message):
    done = process("run", script(f"import sys, oneflow\n{leave}"))
    assert (done.returncode, done.stderr) == (code, message)


def test_what_was_there_before_is_there_again(flow2onnx, script, monkeypatch):
    installed = type(sys)("oneflow")
    monkeypatch.setitem(sys.modules, "oneflow", installed)
    argv, path, finders, main = sys.argv, sys.path, list(sys.meta_path), sys.modules["__main__"]
    flow2onnx("run", script("import oneflow.nn, sys; print(sys.modules['oneflow'].nn)"))
    assert sys.modules["oneflow"] is installed
    assert [name for name in sys.modules if name.startswith("oneflow.")] == []
    assert (sys.argv, sys.path, sys.meta_path) == (argv, path, finders)
    assert sys.modules["__main__"] is main


def test_callbacks_are_waited_for(flow2onnx, script):
    body = "for i in range(5): train_job(x)(lambda loss, i=i: print(i, loss.shape))"
    path = script(TRAIN.format(returns="tp.Callback[tp.Numpy]") + body)
    assert flow2onnx("run", path).stdout.splitlines() == [f"{i} (4, 1)" for i in range(5)]


def test_callbacks_are_waited_for_after_sys_exit(flow2onnx, script):
    body = "train_job(x)(lambda loss: print(loss.shape))\nraise SystemExit(4)"
    result = flow2onnx("run", script(TRAIN.format(returns="tp.Callback[tp.Numpy]") + body))
    assert (result.stdout, result.exit_code) == ("(4, 1)\n", 4)


# --- options --------------------------------------------------------------------------------------


def test_the_release_of_the_api(flow2onnx, script):
    path = script("import oneflow as flow\nflow.clear_default_session()\nprint(flow.__version__)")
    assert flow2onnx("run", path).stdout == "0.4.0\n"
    assert flow2onnx("run", "--api", "0.1.4", path).stdout == "0.1.4\n"
    assert current_session().release == "0.1.4"


def test_a_release_that_is_none(flow2onnx, script):
    result = flow2onnx("run", "--api", "new", script(""))
    assert result.exit_code == 2
    assert "new is not a release of OneFlow, such as 0.1.4" in result.stderr
    result = flow2onnx("run", "--api", "9.9", script(""))
    assert result.exit_code == 2
    assert "9.9 is not a release of OneFlow with job functions" in result.stderr


def test_the_seed_changes_initial_values(flow2onnx, script):
    body = "print(flow.get_all_variables()['w'].numpy().ravel().tolist())"
    path = script(TRAIN.format(returns="tp.Numpy") + body)
    seeds = [flow2onnx("run", "--seed", seed, path).stdout for seed in (0, 0, 5)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_stop_on_non_finite(flow2onnx, script):
    body = "train_job(x)\ntrain_job(x * np.inf)"
    path = script(TRAIN.format(returns="tp.Numpy") + body)
    assert flow2onnx("run", path).exit_code == 0
    stopped = flow2onnx("run", "--stop-on-non-finite", path)
    assert stopped.exit_code == 1
    assert "NonFiniteError: the loss of step 1 is not finite" in stopped.stderr


def test_the_provider_overrules_placements(flow2onnx, script, caplog):
    path = script(
        """
        import numpy as np, oneflow as flow, oneflow.typing as tp

        @flow.global_function()
        def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
            with flow.scope.placement("gpu", "0:0"):
                return flow.math.relu(x)

        job(np.ones(2, np.float32))
        """
    )
    with caplog.at_level(logging.WARNING, "flow2onnx"):
        assert flow2onnx("run", "--provider", "cpu", path).exit_code == 0
    assert caplog.records == []


@pytest.mark.parametrize("row", PROVIDERS.values(), ids=lambda row: row.tag)
def test_every_provider_that_trains_can_be_asked_for(flow2onnx, script, row):
    result = flow2onnx("run", "--provider", row.tag, script(""))
    if row.is_remote or not row.trains:
        assert "is not one of" in result.stderr
    elif opens(row.name):
        assert result.exit_code == 0
    else:
        assert f"ProviderError: {row.name} cannot be used here; usable are " in result.stderr


def test_a_provider_that_cannot_be_used(flow2onnx, script, monkeypatch):
    monkeypatch.setattr(
        "flow2onnx.cli.provider_option.usable_providers", lambda: ("CPUExecutionProvider",)
    )
    monkeypatch.setattr("flow2onnx.cli.provider_option.opens", lambda name: False)
    monkeypatch.setattr("flow2onnx.cli.provider_option.why_unusable", lambda name: "it lacks a GPU")
    result = flow2onnx("run", "--provider", "cuda", script(""))
    assert result.exit_code == 1
    assert result.stderr == (
        "ProviderError: CUDAExecutionProvider cannot be used here; usable are "
        "CPUExecutionProvider\n  it lacks a GPU\n"
    )


# --- errors ---------------------------------------------------------------------------------------

WRONG = """
import numpy as np
import oneflow as flow
import oneflow.typing as tp

@flow.global_function()
def job(x: tp.Numpy.Placeholder((8, 3))) -> tp.Numpy:
    y = flow.matmul(x, x)
    return y

job(np.ones((8, 3), np.float32))
"""


def test_our_errors_show_the_message_and_the_users_line(flow2onnx, script):
    result = flow2onnx("run", script(WRONG))
    assert result.exit_code == 1
    head, place, *excerpt = result.stderr.splitlines()
    assert head == "ShapeError: matmul: inner dimensions differ: a is (8, 3), b is (8, 3)"
    assert place.startswith("  in job job, train.py:8   — ")
    assert excerpt == [
        "",
        "    6 | @flow.global_function()",
        "    7 | def job(x: tp.Numpy.Placeholder((8, 3))) -> tp.Numpy:",
        "  > 8 |     y = flow.matmul(x, x)",
        "    9 |     return y",
    ]


def test_the_whole_traceback_on_request(flow2onnx, script):
    lines = flow2onnx("run", "--traceback", script(WRONG)).stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert 'train.py", line 11, in <module>' in lines[1]
    assert any("ops/array.py" in line for line in lines)


def test_errors_of_the_script_look_as_under_python(process, script, folder):
    path = script("import oneflow\ndef f():\n    raise KeyError('mine')\nf()")
    done = process("run", path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[:3] == [
        "Traceback (most recent call last):",
        f'  File "{folder / path}", line 4, in <module>',
        "    f()",
    ]
    assert done.stderr.splitlines()[-1] == "KeyError: 'mine'"
    assert "flow2onnx" not in done.stderr.replace(str(folder), "")


def test_a_syntax_error(flow2onnx, script):
    result = flow2onnx("run", script("x = = 1"))
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1] == "SyntaxError: invalid syntax"


def test_ctrl_c(flow2onnx, script):
    result = flow2onnx("run", script("raise KeyboardInterrupt"))
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian.py", "ScriptError: trian.py does not exist\n  did you mean train.py?\n"),
        ("other", "ScriptError: other does not exist\n  give a script, such as train.py\n"),
        (".", "ScriptError: . is a directory\n  name the script in it\n"),
        ("data.bin", "ScriptError: data.bin is not a Python script but a binary file\n"),
    ],
)
def test_a_script_that_is_none(flow2onnx, script, folder, name, message):
    script("")
    np.zeros(3).tofile(folder / "data.bin")
    result = flow2onnx("run", name)
    assert (result.stderr, result.exit_code) == (message, 1)


def test_log_messages_and_failing_callbacks_take_one_line_each(process, script):
    body = """
flow.config.use_rdma(True)
def callback(loss):
    raise ValueError("from the callback")
train_job(x)(callback)
"""
    done = process("run", script(TRAIN.format(returns="tp.Callback[tp.Numpy]") + body))
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["flow2onnx"] * 2
    assert "warning: train.py:16: use_rdma" in done.stderr
    assert "ValueError: from the callback (train.py:18)" in done.stderr


def test_a_script_that_sets_logging_up_gets_our_messages(process, script):
    path = script(
        """
        import logging, oneflow as flow
        logging.basicConfig(format="MINE %(name)s")
        flow.config.use_rdma(True)
        """
    )
    assert process("run", path).stderr == "MINE flow2onnx.config\n"


@pytest.mark.parametrize(
    ("rank", "quiet", "shown"), [("0", "1", 1), ("1", "1", 0), ("1", None, 0), ("1", "", 1)]
)
def test_of_the_ranks_of_a_machine_one_warns(flow2onnx, script, monkeypatch, rank, quiet, shown):
    """Unless all output is asked for."""
    path = script(
        """
        import warnings, oneflow as flow
        flow.config.use_rdma(True)
        warnings.warn("of the script")
        """
    )
    for name, value in {"WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank}.items():
        monkeypatch.setenv(name, value)
    if quiet is not None:
        monkeypatch.setenv("FLOW2ONNX_QUIET_RANKS", quiet)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # which pytest has put there
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = flow2onnx("run", path)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count("warning: train.py:3: use_rdma") == shown
    assert len(found) == shown
