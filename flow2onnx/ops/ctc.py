"""The CTC loss, as sums over alignments one time step after another, and its greedy decoder."""

import math

import numpy as np

from flow2onnx.dtypes import int64
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.ops.loss_parts import Reduction, reduced
from flow2onnx.ops.reduce import reduce_mean, reduce_sum
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.op import composite, op

_NEVER = -1e30  # the logarithm of no probability, kept finite so that differences are numbers
_TOO_FAR = -1e29


def _log_probs_vjp(
    b: Builder, inputs: tuple[Value], outputs: tuple[Value], g: Value
) -> tuple[Value]:
    return (b.Sub(g, b.Mul(b.Exp(inputs[0]), b.ReduceSum(g, [2], keepdims=1))),)


@op("ctc_loss.log_probs", vjp=_log_probs_vjp, is_public=False)
def _log_probs(b: Builder, log_probs: Value) -> Value:
    """The value itself; OneFlow's gradient is that of the logits behind the log-softmax."""
    return b.Identity(log_probs)


@op("ctc_loss.by_sample", is_public=False)
def _by_sample(
    b: Builder,
    log_probs: Value,
    targets: Value,
    input_lengths: Value,
    target_lengths: Value,
    blank: int,
    zero_infinity: bool,
) -> Value:
    steps, batch, _ = dims(log_probs)
    inputs, lengths = (b.Cast(v, to=int64) for v in (input_lengths, target_lengths))
    labels = _rows(b, b.Cast(targets, to=int64), lengths, batch)
    states = _states(b, labels, blank)
    emitted = _log_probs_of(b, log_probs, states)
    allowed = _skip_penalties(b, states, blank, log_probs)
    alpha = _first(b, emitted[0])
    for t in range(1, steps):
        moved = b.Add(_step(b, alpha, allowed), emitted[t])
        is_running = b.Unsqueeze(b.Less(b.const(t), inputs), [-1])
        alpha = b.Where(is_running, moved, alpha)
    total = _total_of(b, alpha, lengths)
    is_possible = b.Greater(total, b.like(_TOO_FAR, total))
    impossible = b.like(0.0 if zero_infinity else math.inf, total)
    return b.Where(is_possible, b.Neg(total), impossible)


def _rows(b: Builder, targets: Value, lengths: Value, batch: int) -> Value:
    """One row of labels for each sample; flat targets follow one another."""
    if rank_of(targets) == 2:
        return targets
    longest = dims(targets)[0]
    starts = b.CumSum(lengths, 0, exclusive=1)
    places = b.Add(b.Reshape(starts, [batch, 1]), np.arange(longest, dtype=np.int64)[None])
    return b.Gather(targets, b.Min(places, b.const(longest - 1)))


def _states(b: Builder, labels: Value, blank: int) -> Value:
    """Every label between two blanks."""
    batch, longest = dims(labels)
    blanks = b.const(np.full((batch, longest, 1), blank, np.int64))
    pairs = b.Reshape(b.Concat(blanks, b.Unsqueeze(labels, [-1]), axis=2), [batch, 2 * longest])
    return b.Concat(pairs, b.const(np.full((batch, 1), blank, np.int64)), axis=1)


def _log_probs_of(b: Builder, log_probs: Value, states: Value) -> list[Value]:
    """The log-probability of each state, step by step."""
    steps = dims(log_probs)[0]
    places = b.Expand(b.Unsqueeze(states, [0]), [steps, *dims(states)])
    picked = b.GatherElements(log_probs, places, axis=2)
    if steps == 1:
        return [b.Squeeze(picked, [0])]
    parts = b.several("Split", picked, axis=0, num_outputs=steps, outputs=steps)
    return [b.Squeeze(part, [0]) for part in parts]


def _first(b: Builder, emitted: Value) -> Value:
    """At the first step only the first two states are reached."""
    count = dims(emitted)[1]
    is_start = np.arange(count)[None] < 2
    return b.Where(b.const(is_start), emitted, b.like(_NEVER, emitted))


def _skip_penalties(b: Builder, states: Value, blank: int, like: Value) -> Value:
    """0 where a state may be reached from the one two before it, as a logarithm."""
    before = b.Pad(states, [0, 2, 0, -2], b.const(blank, int64))
    is_other = b.And(b.Not(b.Equal(states, before)), b.Not(b.Equal(states, b.const(blank))))
    return b.Where(is_other, b.like(0.0, like), b.like(_NEVER, like))


def _step(b: Builder, alpha: Value, allowed: Value) -> Value:
    """The logarithm of the probability of coming to each state by staying, one step or two."""
    never = b.like(_NEVER, alpha)
    one, two = (b.Pad(alpha, [0, k, 0, -k], never) for k in (1, 2))
    two = b.Add(two, allowed)
    highest = b.Max(alpha, one, two)
    parts = [b.Exp(b.Sub(v, highest)) for v in (alpha, one, two)]
    return b.Add(highest, b.Log(b.Add(b.Add(parts[0], parts[1]), parts[2])))


def _total_of(b: Builder, alpha: Value, lengths: Value) -> Value:
    """The logarithm of the probability of the last label or the blank after it."""
    last = b.Unsqueeze(b.Mul(lengths, b.const(2)), [-1])
    at_blank = b.GatherElements(alpha, last, axis=1)
    at_label = b.GatherElements(alpha, b.Max(b.Sub(last, b.const(1)), b.const(0)), axis=1)
    is_empty = b.Equal(last, b.const(0))
    at_label = b.Where(is_empty, b.like(_NEVER, alpha), at_label)
    highest = b.Max(at_blank, at_label)
    total = b.Add(b.Exp(b.Sub(at_blank, highest)), b.Exp(b.Sub(at_label, highest)))
    return b.Squeeze(b.Add(highest, b.Log(total)), [-1])


@op("ctc_loss.reduced", is_public=False)
def _reduce(b: Builder, loss: Value, target_lengths: Value, reduction: str) -> Value:
    if reduction == "sum":
        return reduce_sum.lower(b, loss)
    lengths = b.Max(b.Cast(target_lengths, to=int64), b.const(1))
    return reduce_mean.lower(b, b.Div(loss, b.Cast(lengths, to=dtype_of(loss))))


@composite("ctc_loss")
def ctc_loss(
    log_probs: Blob,
    targets: Blob,
    input_lengths: Blob,
    target_lengths: Blob,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
    name: str | None = None,
) -> Blob:
    """-ln of the probability that log_probs (time, batch, classes) spell each row of `targets`."""
    _check(log_probs, targets, input_lengths, target_lengths, blank, reduction)
    arguments = targets, input_lengths, target_lengths, blank, zero_infinity
    loss: Blob = _by_sample(_log_probs(log_probs), *arguments)
    return loss if reduction == "none" else _reduce(loss, target_lengths, reduction)


def _check(
    log_probs: Blob,
    targets: Blob,
    input_lengths: Blob,
    target_lengths: Blob,
    blank: int,
    reduction: str,
) -> None:
    if len(log_probs.shape) != 3:
        raise ShapeError(f"log_probs is (time, batch, classes), got {log_probs.shape}")
    _, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise ArgumentError(f"blank {blank} is no class of {classes}")
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"reduction is 'none', 'mean' or 'sum', got {reduction!r}")
    if len(targets.shape) not in (1, 2) or (len(targets.shape) == 2 and targets.shape[0] != batch):
        raise ShapeError(f"targets is ({batch}, labels) or all in one row, got {targets.shape}")
    for what, blob in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if blob.shape != (batch,):
            raise ShapeError(f"{what} is ({batch},), got {blob.shape}")
    for blob in (targets, input_lengths, target_lengths):
        if blob.dtype.is_floating_point:
            raise DTypeError(f"labels and lengths are whole numbers, got {blob.dtype.name}")


@op("nn.ctc_greedy_decoder", catalogued=True)
def ctc_greedy_decoder(
    b: Builder, log_probs: Value, input_lengths: Value, merge_repeated: bool, name: str | None
) -> tuple[Value, Value]:
    """The labels of the likeliest path (batch, time), 0 after the last; and -sum of its logarithms.

    The last class is the blank.
    """
    if rank_of(log_probs) != 3 or dims(input_lengths) != dims(log_probs)[1:2]:
        raise ShapeError(f"log_probs is (time, batch, classes), got {dims(log_probs)}")
    steps, batch, classes = dims(log_probs)
    scores = b.Transpose(log_probs, perm=[1, 0, 2])
    best = b.ArgMax(scores, axis=2, keepdims=0)
    lengths = b.Unsqueeze(b.Cast(input_lengths, to=int64), [-1])
    is_running = b.Less(np.arange(steps, dtype=np.int64)[None], lengths)
    is_said = b.And(is_running, b.Not(b.Equal(best, b.const(classes - 1))))
    if merge_repeated:
        before = b.Pad(best, [0, 1, 0, -1], b.const(-1, int64))
        is_said = b.And(is_said, b.Not(b.Equal(best, before)))
    places = b.Sub(b.CumSum(b.Cast(is_said, to=int64), 1), b.const(1))
    # what is not said goes to a place of its own, which is cut off
    places = b.Where(is_said, places, b.const(steps))
    blank = b.const(np.zeros((batch, steps + 1), np.int64))
    decoded = b.Slice(b.ScatterElements(blank, places, best, axis=1), [0], [steps], [1])
    highest = b.ReduceMax(scores, [2], keepdims=0)
    total = b.ReduceSum(b.Where(is_running, highest, b.like(0.0, highest)), [1], keepdims=1)
    return decoded, b.Neg(total)


def ctc(
    b: Builder,
    output: Value,
    labels: Value,
    input_lengths: Value,
    target_lengths: Value,
    blank: int = 0,
    zero_infinity: bool = False,
    logits: bool = False,
    batch_first: bool = False,
    reduction: Reduction = "mean",
) -> Value:
    """-log of the probability that the output spells the labels: torch's CTCLoss.

    The output are logarithms of probabilities (time, batch, classes), or scores of any size with
    `logits`; labels are (batch, longest). Lengths say how much of a row counts. The mean is of the
    quotients by the lengths of the labels. A text that cannot be spelt in its time costs infinity
    and has a gradient of 0; `zero_infinity` makes that 0. Graves et al., "Connectionist Temporal
    Classification: Labelling Unsegmented Sequence Data with Recurrent Neural Networks", 2006.
    """
    if rank_of(output) != 3:
        raise ShapeError(f"output is (time, batch, classes), got {dims(output)}")
    if type(blank) is not int or not 0 <= blank < dims(output)[2]:
        raise ArgumentError(f"blank {blank!r} is no class of {dims(output)[2]}")
    scores = b.LogSoftmax(output, axis=-1) if logits else output
    scores = b.Transpose(scores, perm=[1, 0, 2]) if batch_first else scores
    lengths = b.Cast(target_lengths, to=int64)
    rows = _pad_labels(b, b.Cast(labels, to=int64), lengths, blank)
    found = _by_sample.lower(b, scores, rows, input_lengths, lengths, blank, zero_infinity)
    if reduction == "mean":
        counted = b.Max(lengths, b.const(1))
        found = b.Div(found, b.Cast(counted, to=dtype_of(found)))
    return reduced(b, found, reduction)


def _pad_labels(b: Builder, labels: Value, lengths: Value, blank: int) -> Value:
    """Rows of labels with blanks behind their lengths, whatever stands there."""
    places = np.arange(dims(labels)[1], dtype=np.int64)[None]
    is_inside = b.Less(b.const(places), b.Unsqueeze(lengths, [-1]))
    return b.Where(is_inside, labels, b.const(blank))
