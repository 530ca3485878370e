"""`flow.saved_model`, `flow.serving` and `flow.onnx.export`: jobs that outlive their program."""

import asyncio

import numpy as np
import onnxruntime
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, CheckpointError
from flow2onnx.proto.saved_model import SavedModel
from tests.api.support import raises

X = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)


def network():
    """A predict job, and the logical names of its blobs."""
    names = {}

    @flow.global_function()
    def infer(image: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        init = flow.random_uniform_initializer(-1, 1)
        hidden = flow.layers.dense(image, 5, kernel_initializer=init, name="hidden")
        shown = flow.layers.dense(hidden, 2, kernel_initializer=init, name="output")
        names.update(
            image=image.logical_blob_name,
            hidden=hidden.logical_blob_name,
            output=shown.logical_blob_name,
        )
        return shown

    return infer, names


def saved(folder, version=1, bias=0.0):
    """A saved model, what its job gives for X, and the value of the hidden layer."""
    infer, names = network()
    flow.load_variables({"output-bias": np.full(2, bias, np.float32)})
    wanted = infer(X)
    values = {n: v.numpy() for n, v in flow.get_all_variables().items()}
    builder = flow.saved_model.ModelBuilder(str(folder))
    signature = builder.ModelName("mlp").Version(version).AddFunction(infer).AddSignature("regress")
    signature.Input("picture", names["image"])
    signature.Output("score", names["output"]).Output("features", names["hidden"])
    builder.Save()
    return wanted, X @ values["hidden-weight"].T + values["hidden-bias"]


def launched(folder, **options):
    session = flow.serving.InferenceSession()
    session.load_saved_model(str(folder), **options)
    session.launch()
    return session


def test_a_model_is_served_without_its_program(tmp_path):
    score, features = saved(tmp_path / "models")
    flow.clear_default_session()
    session = launched(tmp_path / "models")
    assert session.list_jobs() == ["infer"]
    assert session.list_inputs() == ("picture",)
    assert session.list_outputs() == ("features", "score")
    assert session.input_info("picture", "infer") == {"shape": (4, 3), "dtype": flow.float32}
    assert session.output_info("score") == {"shape": (4, 2), "dtype": flow.float32}
    for rows in (4, 2):
        found = session.run("infer", picture=X[:rows])
        np.testing.assert_allclose(found[0], features[:rows], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], score[:rows], rtol=1e-5, atol=1e-6)
    again = asyncio.run(session.async_run("infer", picture=X))
    np.testing.assert_allclose(again[1], score, rtol=1e-5, atol=1e-6)
    session.close()


def test_the_folder_is_that_of_oneflow_and_opens_as_onnx(tmp_path):
    score, _ = saved(tmp_path / "models", version=3)
    folder = tmp_path / "models" / "3"
    assert {p.name for p in folder.iterdir()} == {
        "infer.onnx", "saved_model.pb", "saved_model.prototxt", "variables"}  # fmt: skip
    model = SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    assert (model.name, model.version, model.checkpoint_dir) == ("mlp", 3, "variables")
    graph = model.graphs[model.default_graph_name]
    given = graph.signatures[graph.default_signature_name].inputs["picture"]
    assert list(given.blob_conf.shape.dim) == [4, 3]
    assert [op.name for op in graph.op_list][:1] == ["hidden-matmul"]
    # The weights are the checkpoint's own files.
    assert (folder / "infer.onnx").stat().st_size < 4000
    found = onnxruntime.InferenceSession(folder / "infer.onnx").run(None, {"image": X})
    np.testing.assert_allclose(found[1], score, rtol=1e-5, atol=1e-6)


def test_other_weights(tmp_path):
    saved(tmp_path / "models")
    halved = {n: v.numpy() / 2 for n, v in flow.get_all_variables().items()}
    flow.checkpoint.save(tmp_path / "other", halved)
    session = flow.serving.InferenceSession()
    session.load_saved_model(str(tmp_path / "models"))
    session.set_checkpoint_path(str(tmp_path / "other"))
    session.launch()
    features, _ = session.run("infer", picture=X)
    wanted = X @ halved["hidden-weight"].T + halved["hidden-bias"]
    np.testing.assert_allclose(features, wanted, rtol=1e-5, atol=1e-6)


def test_the_way_of_oneflows_own_tests(tmp_path):
    """The description read by hand, the job opened by name, another batch size."""
    score, _ = saved(tmp_path / "models")
    model = SavedModel.FromString((tmp_path / "models/1/saved_model.pb").read_bytes())
    graph = model.graphs[model.default_graph_name]
    signature = graph.signatures[graph.default_signature_name]
    option = flow.serving.SessionOption()
    option.device_tag = "cpu"
    session = flow.serving.InferenceSession(option)
    session.set_checkpoint_path(str(tmp_path / "models" / "1" / model.checkpoint_dir))
    with session.open(model.default_graph_name, signature, 2):
        session.compile(graph.op_list)
    session.launch()
    assert session.input_info("picture", "infer")["shape"] == (2, 3)
    np.testing.assert_allclose(
        session.run("infer", picture=X[:2])[1], score[:2], rtol=1e-5, atol=1e-6
    )


def test_the_latest_version_or_one_that_is_named(tmp_path, capsys):
    first, _ = saved(tmp_path / "models", version=2)
    flow.clear_default_session()
    second, _ = saved(tmp_path / "models", version=10, bias=1.0)
    assert np.abs(second - first).max() > 0.5
    latest = launched(tmp_path / "models")
    latest.print_job_set()
    assert "job_name: infer\n\top_name: hidden" in capsys.readouterr().out
    named = launched(tmp_path / "models", model_version=2)
    np.testing.assert_allclose(latest.run("infer", picture=X)[1], second, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(named.run("infer", picture=X)[1], first, rtol=1e-5, atol=1e-6)


def test_a_version_is_never_replaced(tmp_path):
    saved(tmp_path / "models")
    flow.clear_default_session()
    with raises(ArgumentError, ValueError, "already exist", at="Save()"):
        saved(tmp_path / "models")


def test_what_is_wrong_with_a_signature(tmp_path):
    infer, names = network()
    infer(X)
    builder = flow.saved_model.ModelBuilder(str(tmp_path / "models")).Version(1)
    graph = builder.AddFunction(infer)
    signature = graph.AddSignature("s")
    with raises(ArgumentError, ValueError, "no logical blob name", at="Input("):
        signature.Input("x", "image")
    with raises(ArgumentError, ValueError, "already exists", at="AddFunction("):
        builder.AddFunction(infer)
    with raises(ArgumentError, ValueError, "already exists", at="AddSignature("):
        graph.AddSignature("s")
    signature.Input("x", names["image"]).Input("y", names["image"])
    with raises(ArgumentError, ValueError, "already bind", at="Save()"):
        builder.Save()
    assert not (tmp_path / "models").exists()


def test_a_session_says_what_is_wrong(tmp_path):
    saved(tmp_path / "models")
    session = flow.serving.InferenceSession()
    with raises(ArgumentError, ValueError, "only allowed when status is RUNNING", at="run("):
        session.run("infer", picture=X)
    with raises(ArgumentError, ValueError, "is not a valid directory", at="load_saved_model("):
        session.load_saved_model(str(tmp_path / "nothing"))
    with raises(ArgumentError, ValueError, "version 7", at="load_saved_model("):
        session.load_saved_model(str(tmp_path / "models"), 7)
    with raises(ArgumentError, ValueError, "graph other do not exist", at="graph_name"):
        session.load_saved_model(str(tmp_path / "models"), graph_name="other")
    with raises(ArgumentError, ValueError, "signature other do not exist", at="signature_name"):
        session.load_saved_model(str(tmp_path / "models"), signature_name="other")
    session.load_saved_model(str(tmp_path / "models"))
    session.launch()
    with raises(ArgumentError, ValueError, 'input "picture" is absent', at="run("):
        session.run("infer", image=X)
    with raises(ArgumentError, ValueError, "requires numpy.ndarray", at="run("):
        session.run("infer", picture=[[1.0]])


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\x05ab"])
def test_a_damaged_description(tmp_path, content):
    saved(tmp_path / "models")
    (tmp_path / "models/1/saved_model.pb").write_bytes(content)
    session = flow.serving.InferenceSession()
    with raises(ArgumentError, ValueError, "is damaged", at="load_saved_model("):
        session.load_saved_model(str(tmp_path / "models"))


def test_onnx_export_takes_the_values_of_the_checkpoint(tmp_path, caplog):
    infer, _ = network()
    wanted = infer(X)
    flow.checkpoint.save(tmp_path / "snapshot")
    flow.load_variables({"hidden-weight": np.zeros((5, 3), np.float32)})
    flow.onnx.export(infer, tmp_path / "snapshot", tmp_path / "infer.onnx", opset=11)
    assert "opset 18 is written, 11 was asked for" in caplog.text
    found = onnxruntime.InferenceSession(tmp_path / "infer.onnx").run(None, {"image": X})
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-6)


def test_onnx_export_with_weights_beside_the_model(tmp_path):
    infer, _ = network()
    wanted = infer(X)
    flow.checkpoint.save(tmp_path / "snapshot")
    path = tmp_path / "out" / "infer.onnx"
    path.parent.mkdir()
    flow.onnx.export(infer, tmp_path / "snapshot", path, external_data=True)
    assert path.with_suffix(".safetensors").exists()
    found = onnxruntime.InferenceSession(path).run(None, {"image": X})
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-6)


def test_onnx_export_of_what_is_not_there(tmp_path):
    infer, _ = network()
    infer(X)
    flow.checkpoint.save(tmp_path / "snapshot", {"hidden-weight": np.zeros((5, 3), np.float32)})
    with raises(CheckpointError, RuntimeError, "has no variable 'hidden-bias'"):
        flow.onnx.export(infer, tmp_path / "snapshot", tmp_path / "infer.onnx")
    with raises(ArgumentError, ValueError, "Cannot find job", at="onnx.export("):
        flow.onnx.export(print, tmp_path / "snapshot", tmp_path / "infer.onnx")
    with raises(ArgumentError, ValueError, "shape_override", at="onnx.export("):
        flow.onnx.export(infer, tmp_path / "snapshot", "a.onnx", shape_override={"image": [1, 3]})
