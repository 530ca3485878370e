"""Values that all variables of an optimizer share are in the graph once, before any pass."""

from collections import Counter

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.graph import Builder

OPTIMIZERS = {
    "adam": lambda rate: flow.optimizer.Adam(rate, do_bias_correction=True),
    "lazy_adam": flow.optimizer.LazyAdam,
    "adamw": lambda rate: flow.optimizer.AdamW(rate, do_bias_correction=True, weight_decay=0.1),
    "lamb": flow.optimizer.LAMB,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_powers_of_the_decay_rates_are_computed_once(name, monkeypatch):
    made, emit = Counter(), Builder.emit

    def count_and_emit(self, op_type, *rest):
        made[op_type] += 1
        return emit(self, op_type, *rest)

    monkeypatch.setattr(Builder, "emit", count_and_emit)

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        one = flow.ones_initializer()
        loss = flow.math.reduce_sum(x)
        for i in range(5):
            w = flow.get_variable(f"w{i}", (3,), initializer=one)
            loss = loss + flow.math.reduce_sum(x * w)
        optimizer = OPTIMIZERS[name](flow.optimizer.PiecewiseConstantScheduler([], [0.1]))
        optimizer.minimize(loss)
        return loss

    job(np.float32([1, 2, 3]))
    assert made["Pow"] == 2
