"""The verification report, on models that are right and on models that are not."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, BundleError, ProviderError
from flow2onnx.export import Check, Output, Report, describe, verify_model
from flow2onnx.export.verification.differences import Tolerance
from flow2onnx.export.verification.reference import Trial
from flow2onnx.onnx_io.read import open_model
from tests.export.jobs import define

FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32


def write(path, nodes, inputs, outputs, constants=(), opset=21, domains=()):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*v) for v in inputs],
        [helper.make_tensor_value_info(*v) for v in outputs],
        [onnx.numpy_helper.from_array(np.array(a), n) for n, a in constants],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    )
    return path


def row(report, check):
    return next(r for r in report.rows if r.check.endswith(check))


def relu(path, **options):
    node = helper.make_node("Relu", ["x"], ["y"])
    return write(path, [node], [("x", FLOAT, ["n", 3])], [("y", FLOAT, ["n", 3])], **options)


def test_a_good_model(tmp_path):
    report = verify_model(relu(tmp_path / "m.onnx"))
    assert report.ok
    assert [r.check for r in report.rows] == [
        "checker", "operators", "kernels", "session", "reference",
    ]  # fmt: skip
    assert report.outputs == (
        Output(name="y", shape=(3, 3), dtype="float32", max_abs=0.0, max_rel=0.0, ok=True),
    )


def test_foreign_operators_are_listed(tmp_path):
    node = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    path = write(tmp_path / "m.onnx", [node], [("x", FLOAT, [3])], [("y", FLOAT, [3])],
                 domains=["com.microsoft"])  # fmt: skip
    report = verify_model(path)
    assert not report.ok
    assert "com.microsoft::Gelu" in row(report, "operators").detail
    assert row(report, "reference").ok is None
    with pytest.raises(BundleError, match=r"com\.microsoft::Gelu"):
        report.raise_if_failed()


def test_missing_kernels_are_named(tmp_path):
    node = helper.make_node("OneHot", ["x", "depth", "values"], ["y"])
    constants = [("depth", np.int32(4)), ("values", np.array([0, 1], np.int32))]
    path = write(
        tmp_path / "m.onnx", [node], [("x", INT32, [3])], [("y", INT32, [3, 4])], constants
    )
    report = verify_model(path)
    assert not report.ok
    assert "OneHot" in row(report, "kernels").detail


def test_expanded_operators_are_named(tmp_path):
    node = helper.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["y"], reduction="mean")
    path = write(tmp_path / "m.onnx", [node], [("x", FLOAT, [6, 3]), ("t", INT64, [6])],
                 [("y", FLOAT, [])])  # fmt: skip
    report = verify_model(path)
    assert report.ok, str(report)
    assert "expanded by the runtime: NegativeLogLikelihoodLoss" in row(report, "kernels").detail


def test_the_checker_sees_wrong_shapes(tmp_path):
    path = relu(tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5
    onnx.save(model, path)
    report = verify_model(path)
    assert row(report, "checker").ok is False
    assert row(report, "reference").ok is None


def test_values_outside_the_models_folder_are_not_read(tmp_path):
    path = tmp_path / "m" / "m.onnx"
    path.parent.mkdir()
    model = onnx.load(relu(path))
    weight = model.graph.initializer.add(name="w", data_type=FLOAT, dims=[1])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../w.bin")
    onnx.save(model, path)
    (tmp_path / "w.bin").write_bytes(bytes(4))
    for look in (verify_model, describe):
        with pytest.raises(BundleError, match="no path inside its folder"):
            look(path)


def test_an_opset_the_runtime_refuses(tmp_path):
    report = verify_model(relu(tmp_path / "m.onnx", opset=99))
    assert row(report, "session").ok is False


def test_values_that_differ_are_found(tmp_path, monkeypatch):
    path = relu(tmp_path / "m.onnx")
    monkeypatch.setattr(
        "flow2onnx.export.verification.model.run_model",
        lambda model, feeds, way: {"y": np.maximum(feeds["x"], 0) + np.float32(0.25)},
    )
    report = verify_model(path)
    assert not report.ok
    assert report.outputs[0].max_abs == pytest.approx(0.25, rel=1e-3)
    with pytest.raises(BundleError, match=r"y differs by 0\.25"):
        report.raise_if_failed()
    assert verify_model(path, atol=0.3).ok


def index_model(path, op_type, index, size, **attributes):
    shape = [5, size] if op_type == "GatherElements" else [7]
    node = helper.make_node(op_type, ["x", "moved"], ["y"], **attributes)
    moved = helper.make_node("Cast", [index[0]], ["moved"], to=INT64)
    return write(path, [moved, node], [("x", FLOAT, [5, size]), (index[0], index[1], shape)],
                 [("y", FLOAT, ["a", "b"])])  # fmt: skip


@pytest.mark.parametrize(
    ("op_type", "limit", "attributes"),
    [("Gather", 5, {"axis": 0}), ("Gather", 30, {"axis": 1}), ("GatherElements", 30, {"axis": -1})],
)
def test_indices_are_in_range(tmp_path, op_type, limit, attributes):
    path = index_model(tmp_path / "m.onnx", op_type, ("i", INT32), 30, **attributes)
    feeds = [Trial(open_model(path), {}, seed, 5.0).feeds["i"] for seed in range(20)]
    assert max(f.max() for f in feeds) < limit
    assert max(f.max() for f in feeds) > 1
    report = verify_model(path)
    assert report.ok, str(report)
    assert report.outputs


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_nothing_is_divided_by_zero(tmp_path, op_type):
    node = helper.make_node(op_type, ["x", "y"], ["z"])
    path = write(tmp_path / "m.onnx", [node], [("x", INT64, [50]), ("y", INT64, [50])],
                 [("z", INT64, [50])])  # fmt: skip
    report = verify_model(path)
    assert report.ok, str(report)
    assert report.outputs[0].ok


def test_whole_numbers_that_index_nothing_are_0_or_1(tmp_path):
    node = helper.make_node("Neg", ["x"], ["y"])
    path = write(tmp_path / "m.onnx", [node], [("x", INT64, [50])], [("y", INT64, [50])])
    assert set(Trial(open_model(path), {}, 0, 5.0).feeds["x"]) == {0, 1}


def test_random_nodes_get_one_draw(tmp_path):
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], mean=2.0),
        helper.make_node("Add", ["x", "noise"], ["noisy"]),
        helper.make_node("Dropout", ["noisy", "rate", "on"], ["y", "mask"]),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, [("x", FLOAT, ["n", 40])],
        [("y", FLOAT, ["n", 40]), ("mask", TensorProto.BOOL, ["n", 40])],
        [("rate", np.float32(0.25)), ("on", np.array(True))],
    )  # fmt: skip
    report = verify_model(path)
    assert report.ok, str(report)
    assert len(report.outputs) == 2
    assert "Dropout ×1, RandomNormalLike ×1" in row(report, "randomness").detail
    mask = Trial(open_model(path), {}, 0, 5.0).feeds["draw/y"]
    assert set(np.unique(mask)) == {np.float32(0), np.float32(1 / 0.75)}


def test_slow_nodes_are_left_out_and_full_compares_them(tmp_path, monkeypatch):
    monkeypatch.setattr("flow2onnx.export.verification.model._BUDGET", 0.05)
    monkeypatch.setattr("flow2onnx.export.verification.reference._SLOWER", 1e6)  # as estimated
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("AveragePool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Neg", ["p"], ["y"]),
    ]
    path = write(tmp_path / "m.onnx", nodes, [("x", FLOAT, [1, 8, 40, 80])],
                 [("y", FLOAT, [1, 8, 20, 40])])  # fmt: skip
    report = verify_model(path)
    assert report.ok, str(report)
    assert row(report, "left out").detail.startswith("not compared: AveragePool ×1")
    assert "2 of 3 values" in row(report, "reference").detail
    assert [o.name for o in report.outputs] == ["y"]
    full = verify_model(path, full=True)
    assert full.ok
    assert "all 1 outputs" in row(full, "reference").detail


def test_what_the_reference_cannot_compute_is_left_out(tmp_path, monkeypatch):
    class Failing:
        def __init__(self, graph, **options):
            if graph.node[0].op_type == "Relu":
                raise NotImplementedError("no Relu")
            self.graph = graph

        def run(self, names, feeds):
            return [-next(iter(feeds.values()))]

    monkeypatch.setattr("flow2onnx.export.verification.reference.ReferenceEvaluator", Failing)
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    path = write(tmp_path / "m.onnx", nodes, [("x", FLOAT, [3])], [("y", FLOAT, [3])])
    report = verify_model(path)
    assert report.ok
    assert "Relu, which the reference cannot compute" in row(report, "left out").detail
    assert report.outputs[0].ok


def test_what_is_too_large_is_not_compared(tmp_path):
    path, shape = tmp_path / "m.onnx", [1 << 16, 1 << 14, 1]
    write(path, [helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, shape)],
          [("y", FLOAT, shape)])  # fmt: skip
    report = verify_model(path)
    assert report.ok
    assert row(report, "reference").ok is None
    assert "8.0 GB" in row(report, "reference").detail


def test_control_flow_is_not_compared(tmp_path):
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["b"])], "b", [],
        [helper.make_tensor_value_info("b", FLOAT, [3])],
    )  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["e"])], "e", [],
        [helper.make_tensor_value_info("e", FLOAT, [3])],
    )  # fmt: skip
    node.attribute[1].g.CopyFrom(other)
    path = write(tmp_path / "m.onnx", [node],
                 [("c", TensorProto.BOOL, []), ("x", FLOAT, [3])], [("y", FLOAT, [3])])  # fmt: skip
    report = verify_model(path)
    assert report.ok, str(report)
    assert "control flow" in row(report, "reference").detail


def test_half_precision_has_its_own_tolerance(tmp_path):
    node = helper.make_node("Exp", ["x"], ["y"])
    half = TensorProto.FLOAT16
    path = write(tmp_path / "m.onnx", [node], [("x", half, [9])], [("y", half, [9])])
    report = verify_model(path)
    assert report.ok, str(report)
    assert "rtol 0.02" in row(report, "reference").detail


@pytest.mark.parametrize("options", [{"rtol": -1.0}, {"atol": "x"}])
def test_wrong_tolerances(tmp_path, options):
    with pytest.raises(ArgumentError):
        verify_model(relu(tmp_path / "m.onnx"), **options)


def test_a_provider_that_is_not_there(tmp_path):
    with pytest.raises(ProviderError):
        verify_model(relu(tmp_path / "m.onnx"), provider="TensorrtExecutionProvider")


def test_what_is_no_model(tmp_path):
    for path in (tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(BundleError, match=str(path)):
            verify_model(path)


@pytest.fixture
def folder(tmp_path):
    train_job, predict_job = define()
    train_job.export(tmp_path / "b", predict=predict_job, verify=False)
    return tmp_path / "b"


def test_a_bundle(folder):
    report = verify_model(folder)
    assert report.ok, str(report)
    assert {r.check.split(":")[0] for r in report.rows} == {
        "manifest.json", "trainer", "init.onnx", "step.onnx", "predict.onnx",
    }  # fmt: skip
    assert {"step.onnx: next/hidden-weight", "predict.onnx: out/0"} <= {
        o.name for o in report.outputs
    }
    assert "means and spreads" in row(report, "init.onnx: state").detail


def test_what_enlarges_rounding_is_looked_at_node_by_node(tmp_path):
    """A bias before batch normalisation has gradient 0, of whose rounding Adam makes a step."""

    @flow.global_function(type="train")
    def train_job(x: tp.Numpy.Placeholder((16, 3, 8, 8))) -> tp.Numpy:
        init = flow.random_normal_initializer()
        y = flow.layers.conv2d(x, 8, 3, kernel_initializer=init, name="conv")
        y = flow.layers.batch_normalization(y, axis=1, name="norm")
        loss = flow.math.square(y - 0.3 * flow.math.sin(y))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.Adam(rate, do_bias_correction=True).minimize(loss)
        return loss

    report = train_job.export(tmp_path / "b")
    assert report.ok, str(report)
    assert "from the runtime's inputs of its node" in row(report, "step.onnx: reference").detail


def test_a_bundle_with_a_changed_file(folder):
    content = bytearray((folder / "step.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "step.onnx").write_bytes(content)
    report = verify_model(folder)
    assert not report.ok
    assert "step.onnx" in row(report, "manifest.json").detail
    assert row(report, "trainer").ok is False


def test_a_bundle_without_a_file(folder):
    (folder / "predict.onnx").unlink()
    report = verify_model(folder)
    assert row(report, "predict.onnx: file").ok is False


def test_reports_as_text_and_json():
    rows = (Check("checker", True, "valid"), Check("reference", None, "not compared: why"))
    infinite = Output(
        name="y",
        shape=(2,),
        dtype="float32",
        max_abs=float("inf"),
        max_rel=float("nan"),
        ok=False,
    )
    report = Report("m.onnx", rows, (infinite,))
    assert not report.ok
    assert str(report).splitlines()[0] == "m.onnx: FAILED"
    assert "FAIL  y" in str(report)
    facts = json.loads(report.to_json())
    assert facts["outputs"][0]["max_abs"] == "inf"
    assert facts["rows"][1] == {"check": "reference", "ok": None, "detail": "not compared: why"}
    Report("m.onnx", rows).raise_if_failed()


def test_comparing():
    x = np.array([1.0, np.nan, np.inf, 0.0], np.float32)
    assert Tolerance(0.0, 0.0).compare("y", x, x.copy()).ok
    assert Tolerance(1e-3, 1e-4).compare("y", x, x + np.float32(1e-5)).ok
    assert not Tolerance(1e-3, 1e-4).compare("y", x, np.array([1, 0, np.inf, 0], np.float32)).ok
    assert not Tolerance(1e-3, 1e-4).compare("y", x, x[:2]).ok
    assert not Tolerance(1e-3, 1e-4).compare("y", x, x.astype(np.float64)).ok
    whole = np.array([1, 2])
    assert not Tolerance(10.0, 10.0).compare("y", whole, whole + 1).ok
    assert Tolerance(0.0, 0.0).compare("y", np.zeros((0, 2)), np.zeros((0, 2))).ok


def test_element_types_that_no_job_has(tmp_path):
    node = helper.make_node("Add", ["x", "x"], ["y"])
    for code in (TensorProto.UINT32, TensorProto.UINT64):
        path = write(tmp_path / "m.onnx", [node], [("x", code, [3])], [("y", code, [3])])
        report = verify_model(path)
        assert report.ok, str(report)
        assert report.outputs[0].ok


def test_an_operator_that_fails_at_run_time_is_found(tmp_path):
    node = helper.make_node("Gather", ["x", "i"], ["y"])
    path = write(tmp_path / "m.onnx", [node], [("x", FLOAT, [3])], [("y", FLOAT, [1])],
                 [("i", np.array([7]))])  # fmt: skip
    report = verify_model(path)
    assert not report.ok
