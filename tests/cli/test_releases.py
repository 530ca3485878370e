"""A layout that a program leaves to OneFlow's release, which its text may not tell."""

import pytest

PROGRAM = """
import numpy as np
{imports}

@flow.global_function({decorator})
def job(x: tp.Numpy.Placeholder({shape})) -> tp.Numpy:
    y = {call}
    return {result}

print(job(np.ones({shape}, np.float32)).shape)
"""
ONEFLOW = "import oneflow as flow\nimport oneflow.typing as tp"
POOL = "flow.nn.max_pool2d(x, 2, 2, 'VALID')"
LAST = "flow.nn.conv2d(x, np.ones((4, 1, 1, 2), 'f'), 1, 'VALID')"  # filters with channels last
FIRST = "flow.nn.conv2d(x, np.ones((4, 8, 1, 1), 'f'), 1, 'VALID')"
EITHER = "flow.nn.conv2d(x, np.ones((3, 8, 8, 8), 'f'), 1, 'VALID')"
OPEN = "nothing tells the release of OneFlow that this is for"


@pytest.fixture
def program(script):
    """Write a program of one job over an image of 8 x 8, two numbers each."""

    def write(call, result="y", decorator="", imports=ONEFLOW, shape=(4, 8, 8, 2)):
        return script(PROGRAM.format(**locals()))

    return write


@pytest.fixture
def told(flow2onnx, program, caplog):
    """What a program prints, and what is said of it: warnings, then errors."""

    def run(*arguments, options=(), **given):
        result = flow2onnx("run", *options, program(*arguments, **given))
        return result.stdout.strip(), "\n".join(caplog.messages) + result.stderr

    return run


def test_a_pool_that_leaves_its_layout_to_the_release(told):
    assert told(POOL) == (
        "(4, 8, 4, 1)",
        f"train.py:8: {OPEN}, and flow.nn.max_pool2d leaves data_format to "
        "it: 'NHWC' before 0.1.8, 'NCHW' since. 'NCHW' is assumed; say --api 0.1.7 or --api "
        "0.4.0, or pass data_format",
    )


@pytest.mark.parametrize(
    ("release", "shape"), [("0.1.7", "(4, 4, 4, 2)"), ("0.4.0", "(4, 8, 4, 1)")]
)
def test_either_choice_is_taken_and_nothing_more_is_said(told, release, shape):
    assert told(POOL, options=("--api", release)) == (shape, "")


@pytest.mark.parametrize(
    "call",
    [
        "flow.nn.avg_pool2d(x, 2, 2, 'VALID')",
        "flow.nn.max_pool3d(flow.expand_dims(x, 1), 1, 2, 'VALID')",
        "flow.nn.batch_normalization(x, *[np.ones((8,), 'f')] * 4)",
        EITHER,
        EITHER.replace("conv2d", "compat_conv2d"),
    ],
)
def test_whatever_releases_compute_differently(told, call):
    assert OPEN in told(call, shape=(4, 8, 8, 8))[1]


def test_a_command_that_compiles_alone_says_it_once_for_all_calls(flow2onnx, program, caplog):
    path = program(f"{POOL} + {POOL}", "flow.nn.avg_pool2d(y, 2, 1, 'SAME')")
    result = flow2onnx("summary", f"{path}:job")
    assert result.exit_code == 0
    (said,) = caplog.messages
    assert said.startswith("train.py:8: ")
    assert "max_pool2d (and 1 more call) leaves" in said


@pytest.mark.parametrize(
    "given",
    [
        {"call": POOL.replace("'VALID'", "'VALID', 'NCHW'")},
        {"call": POOL.replace("'VALID'", "'VALID', data_format='NHWC'")},
        {"call": "flow.layers.conv2d(x, 3, 1)"},
        {"call": "flow.layers.batch_normalization(x)"},
        {"call": POOL, "result": "flow.nn.hardswish(y)"},
        {"call": POOL, "result": "flow.sort(y, axis=-1)"},
        {"call": FIRST, "result": "flow.nn.max_pool2d(y, 2, 2, 'VALID')"},
        {"call": POOL, "imports": ONEFLOW.replace("oneflow", "flow2onnx")},
        {
            "call": POOL,
            "imports": "from oneflow.compatible import single_client as flow\n"
            "from oneflow.compatible.single_client import typing as tp",
        },
    ],
    ids=["first", "last", "conv", "norm", "symbol", "keyword", "filters", "ours", "later"],
)
def test_nothing_is_said_where_the_text_tells_or_nothing_depends_on_it(told, given):
    printed, said = told(**given)
    assert printed.startswith("(4, ")
    assert said == ""


def test_what_our_operators_call_tells_nothing(told):
    """Layers are made of operators that came later."""
    assert OPEN in told(POOL, "flow.layers.layer_norm(y)")[1]


def test_an_early_form_is_taken_at_its_word(told):
    early = "flow.function_config()"
    with pytest.warns(DeprecationWarning, match="func_config"):
        _, said = told(POOL, decorator=early)
    assert "'NHWC' is assumed; say --api 0.1.4 or --api 0.4.0" in said


def test_filters_that_fit_the_other_layout_alone(told):
    _, said = told(LAST)
    assert "ShapeError: nn.conv2d: the operands have their channels as data_format 'NHWC'" in said
    assert "train.py:8   — run it with --api 0.1.7, or pass data_format" in said
    assert told(LAST, options=("--api", "0.1.7")) == ("(4, 8, 8, 4)", "")
