"""An update in parts: each runs once what it reads is there, and a failure between two is told."""

import numpy as np
import pytest
from flow2onnx_runtime import Options, State
from flow2onnx_runtime.errors import StateError

from flow2onnx.engine.buckets import BucketMemory
from flow2onnx.engine.opening import plan_opening
from flow2onnx.engine.parts import PartedModel
from flow2onnx.passes.slices import vector_of
from tests.optim.test_exchange import compiled


@pytest.fixture
def opening():
    return plan_opening(compiled(2), Options(intra_op_threads=1).for_training())


@pytest.fixture
def state(opening):
    found = State()
    for variable in opening.job.variables.values():
        found.add(variable.name, np.ones(variable.shape, variable.dtype.numpy))
    return found


def parted(opening, state, before):
    links = BucketMemory(opening).received
    return PartedModel(
        opening.update, state, "/update", before=before, between=lambda results: {}, links=links
    )


def test_each_part_waits_for_what_it_reads(opening, state):
    asked = []

    def before(program):
        asked.append({vector_of(i.name) for i in program.inputs if i.name not in state})
        present = [float(state.read(f"w{k}").flat[0]) for k in range(4)]
        # with gradients of zeros Adam moves by the moments, which are ones
        assert [value == 1.0 for value in present] == [True, True, *[len(asked) == 1] * 2]
        return {}

    model = parted(opening, state, before)
    model.run(())
    assert asked == [{"bucket/0"}, {"bucket/1"}]
    assert not state.torn
    assert {f"w{k}" for k in range(4)} <= set(model.writes)


def test_what_fails_between_two_parts_leaves_state_torn(opening, state):
    def before(program):
        if "w0" in program.writes:
            raise ValueError("a rank is gone")
        return {}

    model = parted(opening, state, before)
    with pytest.raises(ValueError, match="a rank is gone"):
        model.run(())
    with pytest.raises(StateError, match="neither the old nor the new"):
        state.read("w3")
    with pytest.raises(StateError, match="neither the old nor the new"):
        state.read("w0")


def test_what_fails_before_the_first_part_changes_nothing(opening, state):
    def before(program):
        raise ValueError("a rank is gone")

    with pytest.raises(ValueError, match="a rank is gone"):
        parted(opening, state, before).run(())
    assert state.read("w3").flat[0] == 1.0
