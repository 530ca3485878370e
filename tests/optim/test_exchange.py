"""Buckets: which gradients travel together between processes."""

import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile import Target
from flow2onnx.compile.variants import compile_for_ranks
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
        ({"all_reduce_group_min_mbyte": 0, "all_reduce_group_num": 1}, [128, 768]),
        (
            {
                "all_reduce_group_min_mbyte": 0,
                "all_reduce_group_num": 1,
                "all_reduce_group_size_warmup": 1,
            },
            [896],
        ),
        ({"all_reduce_group_min_mbyte": 1, "all_reduce_group_size_warmup": 4}, [128, 768]),
    ],
)
def test_flags_say_which_gradients_travel_together(flags, buckets):
    assert sent(**flags) == buckets
