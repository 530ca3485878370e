"""Descriptions of models, bundles and checkpoints, whole and damaged."""

import contextlib
import json
import random

import numpy as np
import pytest
from flow2onnx_runtime import save_safetensors

import flow2onnx as flow
from flow2onnx.errors import BundleError, CheckpointError
from flow2onnx.export import Report, describe, verify_model
from tests.export.jobs import batch, define

CASES = 300
SEED = 20240701


def test_a_model(tmp_path):
    _, predict_job = define()
    predict_job.export(tmp_path / "m.onnx", verify=False)
    facts = describe(tmp_path / "m.onnx")
    assert facts["kind"] == "model"
    assert facts["bytes"] == (tmp_path / "m.onnx").stat().st_size
    assert facts["inputs"] == [{"name": "images", "dtype": "float32", "shape": [6, 1, 3, 3]}]
    assert facts["nodes"]["Gemm"] == 2
    count = 8 * 9 + 8 + 4 * 8 + 4
    assert facts["parameters"] == {
        "tensors": 4, "count": count, "bytes": 4 * count,
        "by_dtype": {"float32": {"tensors": 4, "count": count, "bytes": 4 * count}},
    }  # fmt: skip
    json.dumps(facts)


def test_a_bundle(tmp_path):
    train_job, predict_job = define()
    train_job.export(tmp_path / "b", predict=predict_job, verify=False)
    facts = describe(tmp_path / "b")
    assert (facts["kind"], facts["job"]) == ("bundle", "train_job")
    assert facts["parameters"]["tensors"] == 4
    assert facts["state_totals"]["tensors"] == 9
    assert set(facts["models"]) == {"init.onnx", "step.onnx", "predict.onnx"}
    assert facts["bytes"] == sum(facts["files"].values())
    json.dumps(facts)


def test_checkpoints(tmp_path):
    train_job, _ = define()
    train_job(*batch())
    flow.checkpoint.save(str(tmp_path / "snapshot"))
    facts = describe(tmp_path / "snapshot")
    assert facts["kind"] == "checkpoint"
    shapes = {v["name"]: v["shape"] for v in facts["variables"]}
    assert shapes["hidden-weight"] == [8, 9]
    assert facts["parameters"]["by_dtype"]["float32"]["bytes"] > 0
    one = describe(tmp_path / "snapshot" / "hidden-weight")
    assert [v["name"] for v in one["variables"]] == ["hidden-weight"]


def test_weights(tmp_path):
    save_safetensors(tmp_path / "w.safetensors", {"w": np.zeros((2, 3), np.float16)}, {"a": "b"})
    facts = describe(tmp_path / "w.safetensors")
    assert facts["kind"] == "weights"
    assert facts["variables"] == [{"name": "w", "dtype": "float16", "shape": [2, 3], "bytes": 12}]
    assert facts["metadata"] == {"a": "b"}


def test_what_is_nothing_of_ours(tmp_path):
    (tmp_path / "text.onnx").write_text("hello world, this is no model at all")
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "w.safetensors").write_bytes(b"\x05")
    (tmp_path / "folder").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "step.onnx").write_bytes(b"x")
    for name in ("text.onnx", "empty.onnx", "w.safetensors", "folder", "half", "missing", "a\0b"):
        with pytest.raises((BundleError, CheckpointError)) as caught:
            describe(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
        assert "hint" not in str(caught.value)


def damaged(content, rng):
    """Cut off, with bits flipped, or with a piece replaced."""
    kind = rng.randrange(3)
    if kind == 0:
        return content[: rng.randrange(len(content))]
    changed = bytearray(content)
    if kind == 1:
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    else:
        start = rng.randrange(len(changed))
        changed[start : start + rng.randrange(1, 40)] = rng.randbytes(rng.randrange(0, 40))
    return bytes(changed)


@contextlib.contextmanager
def case(number):
    """Tell which case an error is of."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case {number} of seed {SEED}")
        raise


def check(path):
    """Every answer is a description, a report or an error that names the file."""
    for ask in (describe, lambda p: verify_model(p, seed=1)):
        try:
            answer = ask(path)
        except (BundleError, CheckpointError) as error:
            assert str(path) in str(error)  # noqa: PT017  # both outcomes are right
        else:
            assert isinstance(answer, dict | Report)
            json.dumps(answer if isinstance(answer, dict) else answer.to_dict())


def test_damaged_models(tmp_path):
    _, predict_job = define()
    predict_job.export(tmp_path / "m.onnx", verify=False, dynamic_batch=True)
    content = (tmp_path / "m.onnx").read_bytes()
    rng = random.Random(SEED)
    for i in range(CASES):
        (tmp_path / "m.onnx").write_bytes(damaged(content, rng))
        with case(i):
            check(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ["manifest.json", "step.onnx", "weights.safetensors"])
def test_damaged_bundles(tmp_path, name):
    train_job, predict_job = define()
    train_job.export(tmp_path / "b", predict=predict_job, verify=False)
    path = tmp_path / "b" / name
    content = path.read_bytes()
    rng = random.Random(SEED)
    for i in range(40):
        path.write_bytes(damaged(content, rng))
        with case(i):
            try:
                describe(tmp_path / "b")
            except BundleError as error:
                assert str(tmp_path) in str(error)  # noqa: PT017  # both outcomes are right
    path.write_bytes(content[:-1])
    if name == "manifest.json":
        with pytest.raises(BundleError, match="its digest is not that of its content"):
            describe(tmp_path / "b")  # though only its last line end is missing
    else:
        assert not verify_model(tmp_path / "b").ok


def test_damaged_weights(tmp_path):
    path = tmp_path / "w.safetensors"
    save_safetensors(path, {"w": np.zeros((2, 3), np.float32), "b": np.ones(3, np.float16)})
    content = path.read_bytes()
    rng = random.Random(SEED)
    for _ in range(CASES):
        path.write_bytes(damaged(content, rng))
        try:
            describe(path)
        except BundleError as error:
            assert str(path) in str(error)  # noqa: PT017  # both outcomes are right
