"""`job.explain()`: flags, nodes and memory of a job."""

import json

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_runtime import AssignedNode, Options
from flow2onnx_runtime.ort_settings import session_keys

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.analysis.live_range import peak_bytes
from flow2onnx.config import CONFIG, ENV, FLAGS, FunctionConfig, Settings
from flow2onnx.engine import explain_job as module
from flow2onnx.engine.placement import best_device
from flow2onnx.graph.model import parse_model

CPU, CUDA, TENSORRT = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Tensorrt"))

tells = pytest.mark.skipif(
    "session.record_ep_graph_assignment_info" not in session_keys(),
    reason="this onnxruntime does not tell which provider runs which node",
)


def dense(config=None, kind="train"):
    @flow.global_function(type=kind, function_config=config or flow.function_config())
    def job(x: tp.Numpy.Placeholder((8, 4))) -> tp.Numpy:
        y = flow.layers.dense(x, 2, kernel_initializer=flow.constant_initializer(0.5), name="dense")
        loss = flow.math.reduce_mean(y * y)
        if kind == "train":
            schedule = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
            flow.optimizer.Adam(schedule).minimize(loss)
        return loss

    return job


def flag(found, name):
    (line,) = [f for f in found.flags if f.name == name]
    return line


def memory(found):
    return {m.kind: m.bytes for m in found.memory}


@tells
def test_a_job_without_flags():
    found = dense().explain()
    assert (found.job, found.kind, found.placed_on) == ("job", "train", best_device())
    assert found.flags == ()
    assert {"Gemm", "Mul"} <= {op for n in found.nodes for op in n.operators}
    for nodes in found.nodes:
        assert nodes.count == sum(nodes.operators.values()) >= len(nodes.names)


@tells
@pytest.mark.skipif(best_device() == "gpu", reason="this machine has a usable GPU")
def test_everything_on_the_cpu():
    found = dense().explain()
    assert found.providers == (CPU,)
    assert [n.provider for n in found.nodes] == [CPU]
    assert found.fallbacks == ()


@tells
@pytest.mark.skipif(best_device() == "gpu", reason="this machine has a usable GPU")
def test_a_gpu_that_is_not_there():
    config = flow.function_config()
    config.default_placement_scope(flow.scope.placement("gpu", "0:0"))
    config.runtime.prefer_nhwc()
    found = dense(config).explain()
    (fallback,) = found.fallbacks
    assert fallback.provider == CPU
    assert fallback.operators == found.nodes[0].operators
    assert f"{CUDA} cannot be used here: install" in fallback.why
    scope = flag(found, "default_placement_scope")
    assert (scope.value, scope.has_effect) == ("gpu 0:0", False)
    assert flag(found, "runtime.prefer_nhwc").outcome == (
        f"no effect: the job does not run on {CUDA}"
    )


def test_what_became_of_flags():
    flow.config.compute_thread_pool_size(1)
    flow.config.comm_net_worker_num(3)
    config = flow.function_config()
    config.enable_inplace(False)
    config.enable_reused_mem(True)
    config.runtime.allow_spinning(False)
    config.use_xla_jit(False)
    config.enable_nccl()
    config.all_reduce_fp16()
    config.allow_cpu_return_op(False)
    config.enable_ssp(True)
    found = dense(config).explain()
    assert [
        (f.name, f.value, f.has_effect, f.outcome.partition(":")[0]) for f in found.flags
    ] == [
        ("enable_inplace", "False", True, "session option enable_mem_reuse = False"),
        ("enable_reused_mem", "True", True, "as the runtime does by itself"),
        (
            "runtime.allow_spinning", "False", True,
            "session option session.intra_op.allow_spinning = 0, "
            "session.inter_op.allow_spinning = 0",
        ),
        ("use_xla_jit", "False", False, "holds anyway"),
        ("enable_nccl", "True", False, "no effect"),
        ("all_reduce_fp16", "True", False, "recorded"),
        ("allow_cpu_return_op", "False", True, "whether results are copied to the host at once"),
        ("enable_ssp", "True", False, "recorded, not built yet"),
        (
            "flow.config.compute_thread_pool_size", "1", True,
            "session option intra_op_num_threads = 1",
        ),
        ("flow.config.comm_net_worker_num", "3", False, "no effect"),
    ]  # fmt: skip
    assert all(f.source.startswith("tests/api/test_explain.py:") for f in found.flags)


def test_a_profile_is_explained_as_the_job_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = flow.function_config()
    config.runtime.enable_profiling()
    outcome = flag(dense(config).explain(), "runtime.enable_profiling").outcome
    assert outcome == "session option enable_profiling = True, profile_file_prefix = flow2onnx"


def test_devices_that_one_process_plays_are_told(caplog):
    flow.config.cpu_device_num(4)
    found = dense().explain()
    assert flag(found, "flow.config.cpu_device_num").has_effect
    assert "this process plays all of them; `flow2onnx launch -n 4`" in caplog.text


def test_memory_by_kind():
    found = dense().explain()
    sizes = memory(found)
    weights = (4 * 2 + 2) * 4
    assert sizes["weights"] == 2 * weights
    # the two moments, and the count of steps
    assert sizes["optimizer state"] == 2 * (2 * weights + 8)
    assert sizes["inputs"] == 8 * 4 * 4
    assert sizes["results"] == 4
    assert sizes["activations"] >= 8 * 2 * 4
    assert [m.kind for m in found.memory if m.estimated] == ["activations"]


def test_a_prediction_has_no_optimizer_state():
    sizes = memory(dense(kind="predict").explain())
    assert sizes["optimizer state"] == 0
    assert sizes["weights"] == (4 * 2 + 2) * 4, "what no job updates has one buffer"


def test_explaining_changes_nothing():
    job, x = dense(), np.ones((8, 4), np.float32)
    first = job(x)
    before = {n: v.numpy() for n, v in flow.get_all_variables().items()}
    job.explain()
    assert {n: v.numpy().tolist() for n, v in flow.get_all_variables().items()} == {
        n: v.tolist() for n, v in before.items()
    }
    assert job(x) < first


@tells
def test_as_dict_is_json_and_str_is_a_table():
    config = flow.function_config()
    config.enable_inplace(False)
    found = dense(config).explain()
    facts = json.loads(json.dumps(found.as_dict()))
    assert facts["flags"][0]["name"] == "enable_inplace"
    assert facts["nodes"][0]["operators"] == found.nodes[0].operators
    lines = str(found).splitlines()
    assert lines[0] == f"train job job, placed on {best_device()}"
    assert "flags:" in lines
    assert "  enable_inplace = False: session option enable_mem_reuse = False" in lines
    assert any(line.startswith("  activations: about ") for line in lines)


def test_a_job_that_returns_nothing():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> None:
        flow.math.relu(x)

    found = job.explain()
    assert found.nodes == ()
    assert found.providers[-1] == CPU


def test_a_runtime_that_does_not_tell_who_runs_what(monkeypatch):
    monkeypatch.setattr(module, "nodes_of", lambda session: None)
    found = dense().explain()
    assert (found.nodes, found.fallbacks) == ((), ())
    assert "nodes:" not in str(found)


# --- what only other machines show ---------------------------------------------------------------
def test_nodes_that_fell_back_are_explained(monkeypatch):
    class Table:
        def has(self, operator):
            return operator != "Tan"

    monkeypatch.setattr(module, "kernels", lambda provider: Table())
    nodes = [
        AssignedNode(CUDA, "Conv", "a", ""),
        AssignedNode(CPU, "Tan", "b", ""),
        AssignedNode(CPU, "Gather", "c", ""),
        AssignedNode(CPU, "Gather", "", ""),
    ]
    found = list(module._fallbacks(nodes, "gpu", Options(providers=(CUDA, CPU))))
    assert [(f.operators, f.names, f.why) for f in found] == [
        ({"Tan": 1}, ("b",), f"{CUDA} has no kernel for it"),
        (
            {"Gather": 2},
            ("c",),
            f"{CUDA} has no kernel for its types, or it only computes shapes",
        ),
    ]
    on_tensorrt = Options(providers=(TENSORRT, CUDA, CPU))
    taken = [AssignedNode(TENSORRT, "Conv", "a", ""), nodes[0]]
    assert list(module._fallbacks(taken, "gpu", on_tensorrt)) == []


class FakeSession:
    def get_providers(self):
        return [CUDA, CPU]

    def get_provider_options(self):
        return {CUDA: {"use_tf32": "0"}}


@pytest.mark.parametrize(
    ("name", "value", "works", "outcome"),
    [
        ("runtime.use_tf32", False, True, f"{CUDA} option use_tf32 = 0"),
        ("runtime.gpu_mem_limit", 5, True, f"{CUDA} option gpu_mem_limit = 5"),
        ("runtime.prefer_nhwc", False, True, f"as {CUDA} does by itself"),
        ("use_tensorrt", True, False, f"no effect: the job does not run on {TENSORRT}"),
    ],
)
def test_options_of_a_provider_are_read_back(name, value, works, outcome):
    asked = Options(providers=((CUDA, {"gpu_mem_limit": "5"}), CPU))
    found = module._SessionAnswers(asked, FakeSession())
    assert module._outcome(FLAGS.rows[name].effect, value, found) == (works, outcome)


def test_every_kind_of_effect_has_an_outcome():
    found = module._SessionAnswers(Options(), None)
    for table in (FLAGS, CONFIG):
        record = FunctionConfig() if table is FLAGS else Settings()
        for name, row in table.rows.items():
            if table.meant(name) is row and not module._holds_no_value(row.effect):
                outcome = module._outcome(row.effect, record.value(name), found)[1]
                assert outcome
    assert all(ENV.rows)


# --- the estimate --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "bytes_"),
    [
        ("y = Neg(x)", 0),  # inputs and outputs are counted apart
        ("a = Neg(x)  y = Neg(a)", 16),
        ("a = Neg(x)  b = Neg(a)  y = Neg(b)", 32),
        ("a = Neg(x)  b = Neg(a)  c = Neg(b)  y = Neg(c)", 32),
        ("a = Neg(x)  b = Neg(x)  c = Neg(x)  d = Add(a, b)  y = Add(c, d)", 64),
        ("a = Neg(x)  b = Identity(a)  c = Identity(b)  y = Neg(c)", 16),
        ("a = Neg(x)  y = Identity(a)", 0),
        ("a = Neg(x)  y = Neg(x)", 0),  # nobody reads a
    ],
)
def test_most_alive(body, bytes_):
    import onnx

    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) {{ {body} }}'
    inferred = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    model: ir.Model = parse_model(inferred.SerializeToString())
    assert peak_bytes(model.graph) == bytes_
