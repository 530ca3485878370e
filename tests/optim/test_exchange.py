"""Buckets: which gradients travel together between processes."""

import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile import Target
from flow2onnx.compile import segments as segments_of
from flow2onnx.compile.segments import cut_for_ranks
from flow2onnx.compile.variants import compile_for_ranks
from flow2onnx.errors import FlowError
from flow2onnx.passes.slices import vector_of
from tests.api.support import rate

SIZES = (256, 512, 128)  # of KiB of the variables, in the order in which they are made


def sent(**flags):
    """The KiB of each bucket, in the order in which they are sent."""
    flow.clear_default_session()
    config = flow.function_config()
    for name, value in flags.items():
        getattr(config, name)(value)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((2, 256))) -> tp.Numpy:
        total = flow.math.reduce_sum(x, axis=[1])
        for i, size in enumerate(SIZES):
            w = flow.get_variable(f"w{i}", (256, size), initializer=flow.ones_initializer())
            total = total + flow.math.reduce_sum(flow.matmul(x, w), axis=[1])
        flow.optimizer.SGD(rate(0.1), momentum=0).minimize(total)
        return total

    made = compile_for_ranks(job.spec, None, Target(ranks=2), 1)
    sizes = {v.name: v.shape.numpy()[0] for v in made.model.graph.outputs if v.name in made.sent}
    assert sizes == {v.name: v.shape.numpy()[0] for v in made.update.model.graph.inputs
                     if v.name in made.sent}  # fmt: skip
    return [sizes[name] * 4 // 1024 for name in made.sent]


@pytest.mark.parametrize(
    ("flags", "buckets"),
    [
        ({}, [896]),  # all together are less than what one is to have
        ({"enable_all_reduce_group": False}, [128, 512, 256]),
        ({"all_reduce_group_min_mbyte": 0}, [128, 512, 256]),
        ({"all_reduce_group_min_mbyte": 0, "all_reduce_group_num": 1}, [640, 256]),
        (
            {
                "all_reduce_group_min_mbyte": 0,
                "all_reduce_group_num": 1,
                "all_reduce_group_size_warmup": 1,
            },
            [896],
        ),
        ({"all_reduce_group_min_mbyte": 1, "all_reduce_group_size_warmup": 4}, [640, 256]),
    ],
)
def test_flags_say_which_gradients_travel_together(flags, buckets):
    assert sent(**flags) == buckets


def compiled(segments="auto", mode=None, threshold=1024, ranks=2, optimizer=None):
    """A way back through four layers, of which the second keeps more than the others."""
    flow.clear_default_session()
    config = flow.function_config()
    config.runtime.gradient_segments(segments)
    config.optimizer_placement_optimization_threshold(threshold)
    if mode is not None:
        config.optimizer_placement_optimization_mode(mode)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((4, 16))) -> tp.Numpy:
        for i, width in enumerate((16, 400, 16, 16)):
            w = flow.get_variable(f"w{i}", (x.shape[1], width), initializer=NORMAL)
            x = flow.math.tanh(flow.matmul(x, w))
        bias = flow.get_variable("bias", (16,), initializer=NORMAL)
        loss = flow.math.reduce_sum(flow.nn.bias_add(x, bias), axis=[1])
        (optimizer or flow.optimizer.Adam(rate(0.1))).minimize(loss)
        return loss

    made = compile_for_ranks(job.spec, None, Target(ranks=ranks), 1)
    return cut_for_ranks(made, on_host=True)


NORMAL = flow.random_normal_initializer()


def test_small_gradients_are_sent_by_one_model():
    assert compiled().parts == ()
    assert compiled(1).parts == ()


def test_a_number_says_how_many_models_there_are():
    parts = compiled(2).parts
    groups = [[vector_of(name) for name in part.sent] for part in parts]
    assert groups == [["bucket/0"] * 3, ["bucket/1"] * 2]
    assert len(compiled(9).parts) == 2  # as two gradients are most of all


def test_variables_move_once_their_gradients_have_come():
    job = compiled(2)
    fed = [{vector_of(name) for name in part.feeds} for part in job.update.parts]
    assert fed == [{"bucket/0"}, {"bucket/1"}]
    moved = [{n for n in part.writes if "-" not in n and n[0] == "w"} for part in job.update.parts]
    assert moved == [{"w3", "w2"}, {"w1", "w0"}]
    clipped = flow.optimizer.SGD(
        rate(0.1), momentum=0, grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0)
    )
    *_, last = compiled(2, optimizer=clipped).update.parts  # before it norms are added up
    assert {f"w{i}" for i in range(4)} <= set(last.writes)
    assert compiled(2, mode="non_distributed").update.parts == ()


def test_plain_descent_adds_what_comes():
    """The rate is in what is sent."""
    job = compiled(optimizer=flow.optimizer.SGD(rate(0.1), momentum=0))
    assert {n.op_type for n in job.update.model.graph} == {"Add"}
    job = compiled(optimizer=flow.optimizer.SGD(rate(0.1), momentum=0.9))
    assert "Mul" in {n.op_type for n in job.update.model.graph}


def test_auto_cuts_where_more_is_hidden_than_lost(monkeypatch):
    monkeypatch.setattr(segments_of, "_LINK_RATE", 1e3)  # a slow link: all may be hidden
    flags = {"all_reduce_group_min_mbyte": 0, "all_reduce_group_num": 4}
    flow.clear_default_session()
    config = flow.function_config()
    for name, value in flags.items():
        getattr(config, name)(value)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((4, 16))) -> tp.Numpy:
        for i in range(4):
            w = flow.get_variable(f"w{i}", (16, 16), initializer=NORMAL)
            x = flow.math.tanh(flow.matmul(x, w))
        flow.optimizer.SGD(rate(0.1), momentum=0).minimize(x)
        return x

    made = compile_for_ranks(job.spec, None, Target(ranks=2), 1)
    assert len(cut_for_ranks(made, on_host=True).parts) == 4
    assert cut_for_ranks(made, on_host=False).parts == ()
    monkeypatch.setattr(segments_of, "_RUN_COST", 1e3)
    assert cut_for_ranks(made, on_host=True).parts == ()


def kept(job):
    variables = job.update.variables
    return {name: v.kept_shape for name, v in variables.items() if v.role == "slot"}


@pytest.mark.parametrize("mode", ["non_distributed", "distributed_split"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_each_process_keeps_its_part_of_slots(mode, ranks):
    """Of variables above the threshold, in parts that are equal; what is small is whole."""
    found = kept(compiled(mode=mode, threshold=100, ranks=ranks)) if 4 % ranks == 0 else None
    if found is None:
        with pytest.raises(FlowError, match="4 rows, which 3 ranks cannot share"):
            compiled(mode=mode, ranks=ranks)
        return
    assert found["w0-m"] == found["w3-v"] == (128,)
    assert found["w1-m"] == found["w2-v"] == (3200,)
    assert found["bias-m"] == (16,)


def test_slots_are_whole_unless_asked_for():
    assert kept(compiled())["w1-m"] == (16, 400)
    assert kept(compiled(mode="distributed_split"))["w0-m"] == (16, 16)  # of 1024 elements or more


def test_matrices_of_muon_stay_whole():
    found = kept(compiled(mode="distributed_split", threshold=4,
                          optimizer=flow.optimizer.named("muon", 0.1)))  # fmt: skip
    assert found["w0-momentum_buffer"] == (16, 16)
    assert found["bias-m"] == (8,)


def test_norms_of_parts_are_exchanged_between_models_of_the_update():
    clipping = flow.optimizer.grad_clipping.by_global_norm(1.0)
    lamb = flow.optimizer.LAMB(rate(0.1), grad_clipping=clipping)
    parts = compiled(mode="distributed_split", optimizer=lamb).update.parts
    numbers = [sum(name.startswith("partial/") for name in part.sent) for part in parts]
    # squares of gradients and of the two large weights; of their directions; then the next values
    assert numbers == [3, 2, 0]
    assert compiled(optimizer=lamb).update.parts == ()
