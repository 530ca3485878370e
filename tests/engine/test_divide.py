"""Jobs that hints and placements divide: what is cut where, and what is refused with its line."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pytest
from flow2onnx_runtime.axis_parts import own_slice, part_length, part_start

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile import Target
from flow2onnx.compile.division import Passed
from flow2onnx.compile.variants import compile_for_ranks
from flow2onnx.engine.divided_model import _schedule
from flow2onnx.engine.passing import pass_rows
from flow2onnx.errors import ArgumentError, ConfigError, FlowError, UnsupportedError
from flow2onnx.graph.transfers import Transfer
from flow2onnx.passes.lay_out import legal_transfer
from flow2onnx.passes.row_shares import Share
from tests.api.support import rate

BATCH, CLASSES = 8, 5
SPLIT = flow.distribute.split
SHARES = [Share("rows", 0), Share("rows", 1), None, Share("sum"), Share("at", 0), Share("at", 1)]


def divided(loss_of, ranks=2, rank=0, config=None):
    """The part of a train job that one of several processes does."""
    flow.clear_default_session()

    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((BATCH, 6)), y: tp.Numpy.Placeholder((BATCH,), flow.int32)
    ) -> tp.Numpy:
        loss = loss_of(x, y)
        flow.optimizer.SGD(rate(0.1), momentum=0.9).minimize(loss)
        return loss

    return compile_for_ranks(job.spec, None, Target(ranks=ranks, rank=rank), 1)


def cross_entropy(y, logits):
    return flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)


def transfers(job):
    return [p.transfer for s in job.division.segments for p in s.passed]


def nodes(job):
    return [n.op_type for graph in job.graphs for n in graph]


@pytest.mark.parametrize(
    ("given", "wanted"), [(a, b) for a, b in itertools.product(SHARES, SHARES) if a != b]
)
def test_every_pair_has_its_transfer_and_that_has_its_way_back(given, wanted):
    there = legal_transfer(given, wanted, (8, 6))
    back = there.back
    assert back.back == there
    # what all have has a gradient of which each has a part, and the other way round
    kinds = {None: Share("sum"), Share("sum"): None}
    whole = [kinds.get(share, share) for share in (wanted, given)]
    assert back.kind == legal_transfer(*whole, (8, 6)).kind


def test_a_softmax_of_split_classes_passes_numbers_of_rows():
    def loss_of(x, y):
        logits = flow.layers.dense(x, CLASSES, name="a", model_distribute=SPLIT(0))
        return cross_entropy(y, logits)

    for rank, size in enumerate((3, 2)):
        job = divided(loss_of, rank=rank)
        passed = [t for t in transfers(job) if t.kind not in ("own_part", "all_gather")]
        assert [t.kind for t in passed] == ["all_max", "all_reduce", "all_reduce"]
        assert {t.shape for t in passed} == {(BATCH, 1)}
        values = [v for g in job.graphs for n in g for v in n.outputs]
        assert not [v for v in values if tuple(v.shape) == (BATCH, CLASSES)]
        shapes = {v.name: tuple(v.shape) for g in job.update.graphs for v in g.inputs}
        assert shapes["a-weight-momentum"] == (size, 6)


def looked_up(i, y):
    table = flow.get_variable(
        "table", (7, 3), initializer=flow.ones_initializer(), distribute=SPLIT(0)
    )
    rows = flow.gather(table, flow.cast(i, flow.int64))
    return flow.math.reduce_sum(rows, axis=[1, 2]) * flow.cast(y, flow.float)


def test_rows_of_a_split_table_go_from_their_owners_and_gradients_back():
    job = divided(looked_up)
    there, back = (t for t in transfers(job) if t.kind in ("to_readers", "to_owners"))
    assert (there.kind, back) == ("to_readers", there.back)
    assert there.shape == (BATCH, 6, 3)
    kinds = {t.kind for t in transfers(job)}
    assert not kinds & {"reduce_scatter", "all_reduce"}, "rows are sent, not added up"


class Meeting:
    """The all-to-all of ranks that are threads, and how many elements were sent to others."""

    def __init__(self, ranks):
        self.ranks, self.sent = ranks, 0
        self.table, self.barrier = [[None] * ranks for _ in range(ranks)], Barrier(ranks)

    def of(self, rank):
        def all_to_all(parts, shapes):
            self.table[rank] = parts
            self.barrier.wait()
            found = [self.table[source][rank] for source in range(self.ranks)]
            assert [f.shape for f in found] == shapes
            self.barrier.wait()
            return found

        return SimpleNamespace(
            world=SimpleNamespace(rank=rank, size=self.ranks), all_to_all=all_to_all
        )


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_each_row_is_sent_once_by_its_owner(ranks):
    rng = np.random.default_rng(ranks)
    table, indices = rng.normal(size=(7, 3)), rng.integers(-7, 7, (9, 2))
    indices[0] = [-8, 7]  # none of the table
    wanted = np.where(((indices >= -7) & (indices < 7))[..., None], table[indices % 7], 0)
    there = Transfer("to_readers", (9, 2, 3), 7, 0)
    meeting = Meeting(ranks)

    def pass_both_ways(rank):
        part = own_slice(0, 9, ranks, rank)
        start = part_start(7, ranks, rank)
        kept = (start <= indices % 7) & (indices % 7 < start + part_length(7, ranks, rank))
        kept &= (indices >= -7) & (indices < 7)
        own = np.where(kept[..., None], wanted, 0)
        rows = pass_rows(meeting.of(rank), passed_as(there, wanted[part].shape), own, indices)
        np.testing.assert_array_equal(rows, wanted[part])
        back = pass_rows(meeting.of(rank), passed_as(there.back, own.shape), rows, indices)
        np.testing.assert_array_equal(back, own)
        sent = meeting.table[rank]
        return sum(part.size for k, part in enumerate(sent) if k != rank)

    with ThreadPoolExecutor(ranks) as pool:
        sent = list(pool.map(pass_both_ways, range(ranks)))
    assert sum(sent) <= 9 * 2 * 3


def passed_as(transfer, shape):
    return Passed(
        transfer=transfer, given="give/0", taken="take/0", shape=shape,
        dtype=np.dtype(np.float64), is_back=False, number=0, indices="indices/0",
    )  # fmt: skip


def test_other_layers_split_their_variables_too():
    def loss_of(x, y):
        x = flow.layers.prelu(x, name="p", model_distribute=SPLIT(0))
        x = flow.layers.affine_channel(x, 1, name="c", model_distribute=SPLIT(0))
        return cross_entropy(y, flow.layers.dense(x, CLASSES, name="a"))

    kept = divided(loss_of).division.kept
    assert {n for n in kept if kept[n].kind == "split"} == {
        name + slot for name in ("p-alpha", "c-scale", "c-bias") for slot in ("", "-momentum")
    }


def two_stages(x, y):
    with flow.scope.placement("cpu", "0:0"):
        hidden = flow.layers.dense(x, 7, flow.math.tanh, name="a")
    with flow.scope.placement("cpu", "0:1"):
        return cross_entropy(y, flow.layers.dense(hidden, CLASSES, name="b"))


def test_parts_of_a_batch_are_as_many_as_are_asked_for():
    config = flow.function_config()
    config.runtime.micro_batches(2)
    assert divided(two_stages, config=config).division.micro == 2
    config = flow.function_config()
    config.runtime.micro_batches(3)
    with pytest.raises(ConfigError, match="a batch of 8 has no such part") as caught:
        divided(two_stages, config=config)
    assert "test_divide.py:" in caught.value.source


def test_stages_have_their_own_layers_and_variables():
    first, second = (divided(two_stages, rank=rank) for rank in (0, 1))
    assert "Tanh" in nodes(first)
    assert "Tanh" not in nodes(second)
    assert "LogSoftmax" in nodes(second)
    assert "LogSoftmax" not in nodes(first)
    kinds = [(t.kind, t.source, t.target) for t in transfers(first)]
    assert kinds == [("send", 0, 1), ("send", 1, 0)]
    assert transfers(second) == transfers(first)
    assert first.division.micro == 4
    assert first.digest == second.digest
    names = {v.name for g in second.update.graphs for v in g.inputs}
    assert {"b-weight", "b-weight-momentum"} < names
    assert not [n for n in names if n.startswith("a-")]


def test_one_forward_for_one_back():
    turns = [list(_schedule(4, ahead)) for ahead in (0, 1, 4)]
    texts = ["".join(f"{k}{'b' if b else 'f'}" for k, b in turn) for turn in turns]
    assert texts == ["0f0b1f1b2f2b3f3b", "0f1f0b2f1b3f2b3b", "0f1f2f3f0b1b2b3b"]


def dense(x, **more):
    return flow.layers.dense(x, CLASSES, name="a", **more)


def placed(ids):
    def loss_of(x, y):
        with flow.scope.placement("cpu", ids):
            return cross_entropy(y, dense(x))

    return loss_of


def split_and_placed(x, y):
    w = flow.get_variable("w", (6, 6), initializer=flow.ones_initializer(), distribute=SPLIT(0))
    with flow.scope.placement("cpu", "0:0"):
        return cross_entropy(y, dense(flow.matmul(x, w)))


def sorted_classes(x, y):
    w = flow.get_variable("w", (6,), initializer=flow.ones_initializer(), distribute=SPLIT(0))
    return cross_entropy(y, dense(x * flow.sort(w)))


def mirrored(x, y):
    with flow.scope.mirrored_view():
        return cross_entropy(y, dense(x.with_distribute(SPLIT(1))))


def split_of_inputs(x, y):
    return cross_entropy(y, dense(x, model_distribute=SPLIT(1)))


def axis_outside(x, y):
    return cross_entropy(y, dense(x.with_distribute(SPLIT(2))))


def two_dimensions(x, y):
    return cross_entropy(y, dense(flow.hierarchical_parallel_cast(x, ["S(0)", "B"])))


def too_few(x, y):
    return cross_entropy(y, dense(flow.parallel_cast(x[:, :3], distribute=SPLIT(1))))


def one_by_one(x, y):
    return cross_entropy(y, dense(flow.advanced.distribute_split(x)[0]))


@pytest.mark.parametrize(
    ("loss_of", "error", "message", "hint"),
    [
        (placed(["0:0", "0:2"]), UnsupportedError, "2 of 4 devices", "one device, or all"),
        (placed("0:7"), ConfigError, "none is for it", "from 0:0 to 0:3"),
        (placed("1:0"), ConfigError, "none is for it", "start more"),
        (split_of_inputs, UnsupportedError, r"model_distribute is S\(1\)", "get_variable"),
        (axis_outside, ArgumentError, r"S\(2\), and there are 2 dimensions", "axes are 0 to 1"),
        (two_dimensions, UnsupportedError, "devices in 2 dimensions", "one hint"),
        (too_few, UnsupportedError, "not enough for 4 processes", "4 elements or more"),
        (one_by_one, UnsupportedError, "handles the blobs of all devices", "parallel_cast"),
        (mirrored, UnsupportedError, "in a mirrored view", "consistent view"),
        (split_and_placed, UnsupportedError, "reads a split variable", "on that device"),
        (sorted_classes, UnsupportedError, "needs it whole", "split another axis"),
    ],
)
def test_what_is_not_supported_says_so_with_its_line(loss_of, error, message, hint):
    with pytest.raises(error, match=message) as caught:
        divided(loss_of, ranks=4)
    assert hint in str(caught.value)
    assert "test_divide.py:" in caught.value.source


def test_state_in_parts_is_refused_beside_hints():
    config = flow.function_config()
    config.enable_non_distributed_optimizer(True)
    with pytest.raises(FlowError, match="optimizer_placement_optimization_mode"):
        divided(lambda x, y: cross_entropy(y, dense(x, model_distribute=SPLIT(0))), 2, 0, config)


def test_a_gradient_passes_the_other_way():
    assert Transfer("all_gather", (8, 6), 0).back == Transfer("reduce_scatter", (8, 6), -1, 0)
    assert Transfer("send", (8, 6), 0, 1).back == Transfer("send", (8, 6), 1, 0)
    assert Transfer("all_max", (8, 1)).back is None
