"""Graphs kept on disk: found again, made again when damaged, never in the way."""

import logging
import multiprocessing
import os

import numpy as np
import onnx
import pytest
from onnx import parser

from flow2onnx_runtime import BundleError, Options, Trainer, graph_cache, open_session
from flow2onnx_runtime.graph_cache import GraphCache

FOLDED = """folded (float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {3, 4}>
{ c = Mul(a, b)  y = Add(x, c) }"""


def model(text=FOLDED):
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]>\n{text}'
    ).SerializeToString()


def answer(content, folder, **options):
    session = open_session(content, Options(graph_cache=str(folder), **options))
    return session.run(None, {"x": np.array([1, 1], np.float32)})[0].tolist()


def test_a_graph_is_kept_and_opened_again(tmp_path, monkeypatch):
    folder = tmp_path / "graphs"
    assert answer(model(), folder) == [4, 9]
    (kept,) = folder.iterdir()
    opened = []
    create = graph_cache.GraphCache._make
    monkeypatch.setattr(GraphCache, "_make", lambda *a: opened.append(a) or create(*a))
    assert answer(model(), folder) == [4, 9]
    assert not opened, "the kept graph was not used"
    assert list(folder.iterdir()) == [kept]


def test_what_is_kept_has_been_rewritten(tmp_path):
    answer(model(), tmp_path)
    (kept,) = tmp_path.iterdir()
    assert [n.op_type for n in onnx.load(kept).graph.node] == ["Add"]  # the product was folded


def test_everything_that_decides_makes_another_graph(tmp_path, monkeypatch):
    answer(model(), tmp_path)
    answer(model(FOLDED.replace("{3, 4}", "{5, 6}")), tmp_path)
    answer(model(), tmp_path, optimization="basic")
    answer(model(), tmp_path, deterministic=True)
    monkeypatch.setattr(graph_cache, "processor_features", lambda: "another")
    answer(model(), tmp_path)
    monkeypatch.setattr(graph_cache.ort, "__version__", "0.0")
    answer(model(), tmp_path)
    assert len(list(tmp_path.iterdir())) == 6
    answer(model(), tmp_path, intra_op_threads=1)  # which does not decide
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize("damage", [lambda c: c[:-3], lambda c: b"", lambda c: c[:-1] + b"\0"])
def test_a_damaged_graph_is_made_again(tmp_path, damage):
    answer(model(), tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    assert answer(model(), tmp_path) == [4, 9]
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [whole]


def test_a_graph_that_no_longer_opens_is_made_again(tmp_path, caplog):
    answer(model(), tmp_path)
    (kept,) = tmp_path.iterdir()
    key = kept.stem.split("-")[0]
    wrong = b"not a model"
    kept.rename(tmp_path / f"{key}-{graph_cache._digest(wrong)}.onnx").write_bytes(wrong)
    with caplog.at_level(logging.WARNING):
        assert answer(model(), tmp_path) == [4, 9]
    assert "does not open any more" in caplog.text
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_said(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert answer(model(), tmp_path / "file" / "graphs") == [4, 9]
    assert "is not kept" in caplog.text


def test_an_error_of_the_model_is_its_own(tmp_path):
    with pytest.raises(BundleError, match="cannot be opened"):
        open_session(b"nonsense", Options(graph_cache=str(tmp_path)))
    assert not list(tmp_path.iterdir())


def test_a_model_whose_weights_lie_elsewhere_is_not_kept(tmp_path):
    (tmp_path / "a.bin").write_bytes(np.array([3, 8], np.float32).tobytes())
    outside = onnx.load_model_from_string(model())
    (a, _) = outside.graph.initializer
    a.ClearField("float_data")
    a.data_location = onnx.TensorProto.EXTERNAL
    a.external_data.add(key="location", value="a.bin")
    onnx.save(outside, tmp_path / "model.onnx")  # already external: written as it is
    assert answer(tmp_path / "model.onnx", tmp_path / "graphs") == [10, 33]
    assert not (tmp_path / "graphs").exists()


def test_a_training_step_goes_on_as_without(bundle, tmp_path):
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 1), np.float32)
    losses = []
    for options in (Options(), *[Options(graph_cache=str(tmp_path / "graphs"))] * 2):
        trainer = Trainer(bundle, options)
        losses.append([float(trainer.step(x, y)["loss"]) for _ in range(3)])
    assert losses[0] == losses[1] == losses[2]
    assert list((tmp_path / "graphs").iterdir())


def test_the_graph_is_written_for_the_caller_too(tmp_path):
    for _ in range(2):  # made, and found
        asked = tmp_path / "asked.onnx"
        answer(model(), tmp_path / "graphs", optimized_path=str(asked))
        assert [n.op_type for n in onnx.load(asked).graph.node] == ["Add"]
        asked.unlink()


def test_the_least_used_go_first(tmp_path):
    cache = GraphCache(tmp_path, limit=250)
    for i, name in enumerate("abc"):
        cache._keep(name, bytes([i]) * 100)
        (written,) = tmp_path.glob(f"{name}-*")
        os.utime(written, (i, i))
    names = {p.name[0] for p in tmp_path.iterdir()}
    assert names == {"b", "c"}
    cache._keep("huge", bytes(251))
    assert not list(tmp_path.glob("huge-*"))


def _in_turn(folder):
    for _ in range(5):
        assert answer(model(), folder) == [4, 9]


def test_processes_share_a_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_in_turn, args=(tmp_path,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0, 0, 0]
    assert len(list(tmp_path.glob("*.onnx"))) == 1
