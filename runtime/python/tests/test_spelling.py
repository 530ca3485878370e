"""Names that were probably meant, and those that were not."""

import pytest

from flow2onnx_runtime.spelling import near_names, spelling_hint


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("d-wieght", ["d-weight", "d-bias"], ["d-weight"]),
        ("sdg", ["adam", "sgd"], ["sgd"]),
        ("Conv2D", ["conv1d", "conv2d"], ["conv2d", "conv1d"]),
        ("batchnorm", ["batch_norm", "layer_norm"], ["batch_norm"]),
        ("mixed_precision", ["enable_auto_mixed_precision"], ["enable_auto_mixed_precision"]),
        ("pred_job", ["train_job", "predict_job"], ["predict_job"]),
        ("float", ["float16", "float32", "int8"], ["float16", "float32"]),
        ("trane.py", ["train.py", "other.txt"], ["train.py"]),
        ("swiglu", ["gelu", "relu", "silu", "swish"], []),
        ("enable_amp", ["enable_nccl", "enable_qat", "enable_ssp"], []),
        ("use_xla", ["use_rdma"], []),
        ("x", ["y"], []),
        ("lr", ["x"], []),
        ("", ["a"], []),
    ],
)
def test_near_names(name, known, near):
    assert near_names(name, known) == near


def test_no_more_than_asked_for():
    known = [f"weight_{i}" for i in range(9)]
    assert len(near_names("weight", known)) == 3
    assert near_names("weight_1", known, most=1) == ["weight_1"]


@pytest.mark.parametrize(
    ("name", "prefix", "hint"),
    [
        ("wieght", "", "did you mean weight?"),
        ("d-bais", "x.", "did you mean x.d-bias?"),
        ("float", "", "did you mean float16 or float32?"),
        ("stride", "x.", "there are some"),
    ],
)
def test_hints_have_one_form(name, prefix, hint):
    known = ["weight", "d-bias", "float16", "float32"]
    assert spelling_hint(name, known, "there are some", prefix=prefix) == hint
    assert spelling_hint("stride", known, None) is None
