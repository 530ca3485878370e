"""The head of a language model, computed for some words or for some rows at a time."""

import gc
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import flow2onnx as flow
from flow2onnx.errors import UnsupportedError
from flow2onnx.imported import adapter_of
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.sessions import batch

SMALL = replace(TINY, layers=1, hidden=32, heads=2, shared=1, inner=48, words=97)
FORMS = {
    "real": SMALL,
    "half": replace(SMALL, dtype="float16"),
    "four bits, points": with_bits(replace(SMALL, is_tied=True), 4, points=True),
    "eight bits": with_bits(SMALL, 8),
}


def train(path, **options):
    """Losses of three steps and the adapters after them."""
    options = {
        "rank": 2,
        "lr": 1e-2,
        "accumulate": False,
        "targets": ["q_proj", "o_proj"],
    } | options
    trainer = flow.lora(path, **options).trainer()
    losses = [float(trainer.step(**batch(SMALL, seed=i))["loss"]) for i in range(3)]
    return losses, adapter_of(trainer).pairs


def check_equal(found, wanted):
    np.testing.assert_allclose(found[0], wanted[0], rtol=2e-6)
    for module, pair in wanted[1].items():
        for a, b in zip(found[1][module], pair, strict=True):
            np.testing.assert_allclose(a, b, atol=3e-5, err_msg=module)


def rewrite(folder, nodes, tensors=()):
    """Let `nodes` make the logits from `raw`, what the head's product makes."""
    model = onnx.load(folder.model, load_external_data=False)
    model.graph.node[-1].output[0] = "raw"
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(tensors)
    onnx.save(model, folder.model)


def by_rows(folder):
    """The same model with a head that is not element by element: negated along a new axis."""
    model = onnx.load(folder.model, load_external_data=False)
    model.graph.node[-1].output[0] = "plain"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray([0]), "axis/new"))
    model.graph.node.append(helper.make_node("Unsqueeze", ["plain", "axis/new"], ["wide"], "w"))
    model.graph.node.append(helper.make_node("Squeeze", ["wide", "axis/new"], ["logits"], "l"))
    onnx.save(model, folder.path / "rows.onnx")
    return folder.path / "rows.onnx"


QUICK = ("four bits, points",)
NAMES = [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FORMS]


@pytest.mark.parametrize("form", NAMES)
def test_words_in_parts_equal_rows_in_parts(tmp_path, form):
    folder = write_folder(tmp_path / "m", FORMS[form])
    wanted = train(by_rows(folder), chunks=3)
    check_equal(train(folder.path, chunks=5), wanted)  # 97 words: the last part reaches back


def test_a_head_with_a_bias_and_a_cap(tmp_path):
    folder = write_folder(tmp_path / "m", FORMS["four bits, points"])
    rng = np.random.default_rng(0)
    constants = {"bias": rng.standard_normal(97), "cap": np.asarray(3.0), "size": np.asarray([0.5])}
    nodes = [
        helper.make_node("Add", ["raw", "bias"], ["moved"], "moved"),
        helper.make_node("Mul", ["size", "moved"], ["sized"], "sized"),
        helper.make_node("Div", ["sized", "cap"], ["low"], "low"),
        helper.make_node("Tanh", ["low"], ["bent"], "bent"),
        helper.make_node("Mul", ["bent", "cap"], ["logits"], "logits"),
    ]
    tensors = (numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items())
    rewrite(folder, nodes, tensors)
    wanted = train(by_rows(folder), logits="logits")
    check_equal(train(folder.path, chunks=4), wanted)


def test_a_table_that_the_head_transposes_is_read_by_rows(tmp_path):
    """As exports of tied words have it: none of them is ever the whole transpose."""
    folder = write_folder(tmp_path / "m", SMALL)
    wanted = train(folder.path, chunks=5, logits="logits")
    model = onnx.load(folder.model)
    head = model.graph.node[-1]
    weight = next(t for t in model.graph.initializer if t.name == head.input[1])
    table = numpy_helper.from_array(numpy_helper.to_array(weight).T.copy(), "table")
    weight.CopyFrom(table)
    turn = helper.make_node("Transpose", ["table"], ["turned"], "turn", perm=[1, 0])
    model.graph.node.insert(len(model.graph.node) - 1, turn)
    head = model.graph.node[-1]
    head.input[1] = "turned"
    onnx.save(model, tmp_path / "turned.onnx")
    check_equal(train(tmp_path / "turned.onnx", chunks=5), wanted)
    made = flow.lora(tmp_path / "turned.onnx", rank=2, targets=["q_proj"], chunks=5)
    whole = list(table.dims)[::-1]
    assert not any(
        list(v.shape or ()) == whole for n in made.step.model.graph.all_nodes() for v in n.outputs
    )


@pytest.mark.slow
def test_no_gradient_of_scales_is_computed(tmp_path):
    made = flow.lora(write_folder(tmp_path / "m", FORMS["eight bits"]).path, rank=2)
    for path in (made, flow.lora(by_rows(write_folder(tmp_path / "n", FORMS["eight bits"])), 2)):
        (scan,) = (n for n in path.step.model.graph if n.op_type == "Scan")
        inside = [n.op_type for n in scan.attributes["body"].value]
        assert inside.count("GatherBlockQuantized") == 1


def test_an_adapter_of_the_head_is_trained(tmp_path):
    folder = write_folder(tmp_path / "m", FORMS["eight bits"])
    losses, pairs = train(folder.path, targets=["lm_head", "q_proj"])
    assert all(np.abs(b).max() > 0 for _, b in pairs.values())
    alone, _ = train(folder.path, targets=["lm_head"])
    assert alone[0] == losses[0]


@pytest.mark.slow
def test_an_adapter_of_a_folded_head_is_trained(tmp_path):
    folder = write_folder(tmp_path / "m", with_bits(SMALL, 4))
    wanted = train(folder.path, targets=["lm_head", "q_proj"])
    check_equal(train(folder.path, targets=["lm_head", "q_proj"], folded=True), wanted)


def test_dropout_before_the_head_is_refused(tmp_path):
    folder = write_folder(tmp_path / "m", SMALL)
    with pytest.raises(UnsupportedError, match="before the adapter of the head"):
        flow.lora(folder.path, rank=2, targets=["lm_head"], dropout=0.1)


def test_folded_weights_train_the_same(tmp_path):
    shape = with_bits(replace(SMALL, is_tied=True), 4, points=True)
    folder = write_folder(tmp_path / "m", shape)
    before = sorted(p.name for p in folder.path.iterdir())
    check_equal(train(folder.path, folded=True), train(folder.path))
    made = flow.lora(folder.path, rank=2, folded=True)
    made.save(tmp_path / "bundle")
    operators = {n.op_type for n in made.step.model.graph}
    assert "MatMulNBits" not in operators
    assert (tmp_path / "bundle" / "real_weights.data").stat().st_nlink == 2
    del made
    gc.collect()
    assert sorted(p.name for p in folder.path.iterdir()) == before
