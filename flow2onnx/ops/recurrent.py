"""Recurrent layers with torch's variables and torch's meaning: RNN, LSTM and GRU."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims
from flow2onnx.ops import array, nn
from flow2onnx.ops.layers import layer_variable
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.initializers import Uniform
from flow2onnx.trace.op import Operator, composite, op

__all__ = ["gru", "lstm", "rnn"]

# The places of ONNX's gates among torch's: i o f c of i f g o, and z r h of r z n.
_GATES = {"RNN": (0,), "LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}


@op("nn.recurrent", is_public=False)
def recurrence(
    b: Builder,
    kind: str,
    x: Value,
    weights: list[Value],
    states: list[Value],
    name: str | None = None,
) -> list[Value]:
    """All outputs (time, batch, directions x hidden) and the last states, a block a direction.

    `weights` has for each direction torch's input and recurrent weight and, or not, two biases.
    """
    count = 2 if all(len(dims(w)) == 2 for w in weights) else 4  # biases have one dimension
    sides = [weights[i : i + count] for i in range(0, len(weights), count)]
    hidden = dims(sides[0][1])[1]
    made = [_stack(b, kind, [side[i] for side in sides]) for i in range(count)]
    bias = b.Concat(made[2], made[3], axis=1) if count == 4 else None
    settings: dict[str, Any] = {"hidden_size": hidden}
    if len(sides) == 2:
        settings["direction"] = "bidirectional"
    if kind == "GRU":
        settings["linear_before_reset"] = 1  # as torch's, where the bias is inside the product
    given = [*states, *[None] * (2 - len(states))] if kind == "LSTM" else [*states, None][:1]
    outputs = b.several(kind, x, made[0], made[1], bias, None, *given,
                        outputs=3 if kind == "LSTM" else 2, **settings)  # fmt: skip
    return [_join_directions(b, outputs[0]), *outputs[1:]]


def _stack(b: Builder, kind: str, parts: Sequence[Value]) -> Value:
    """Torch's parameter of each direction in the order of ONNX's gates, the direction first."""
    ordered = [b.Unsqueeze(_order_gates(b, kind, part), [0]) for part in parts]
    return ordered[0] if len(ordered) == 1 else b.Concat(*ordered, axis=0)


def _order_gates(b: Builder, kind: str, weight: Value) -> Value:
    gates = _GATES[kind]
    if len(gates) == 1:
        return weight
    rows = dims(weight)[0] // len(gates)
    blocks = [b.Slice(weight, [g * rows], [(g + 1) * rows], [0]) for g in gates]
    return b.Concat(*blocks, axis=0)


def _join_directions(b: Builder, y: Value) -> Value:
    """(time, directions, batch, hidden) as (time, batch, directions x hidden)."""
    if dims(y)[1] == 1:
        return b.Squeeze(y, [1])
    return b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, -1])


def _layer(kind: str, doc: str, returned: Any) -> Operator[Any]:
    def layer(
        inputs: Blob,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        hx: Blob | Sequence[Blob] | None = None,
        trainable: bool = True,
        name: str = kind,
    ) -> Any:
        _check(inputs, hidden_size, num_layers)
        job = current_job(f"nn.{kind}")
        own = job.name_layer(name or kind, kind)
        directions = 2 if bidirectional else 1
        x = array.transpose(inputs, (1, 0, 2)) if batch_first else inputs
        starts = _starts(kind, hx, num_layers * directions)
        last: list[list[Blob]] = []
        for index in range(num_layers):
            weights = _weights(kind, own, x, hidden_size, index, directions, bias, trainable)
            first = index * directions
            given = [s[first : first + directions] for s in starts]
            with job.namespace(own):
                x, *states = recurrence(kind, x, weights, given)
                if dropout and index + 1 < num_layers:
                    x = nn.dropout(x, dropout)
            last.append(states)
        ends = [_concat([s[i] for s in last]) for i in range(len(last[0]))]
        y = array.transpose(x, (1, 0, 2)) if batch_first else x
        return y, (ends[0] if len(ends) == 1 else tuple(ends))

    layer.__name__, layer.__doc__ = kind, doc
    layer.__annotations__["return"] = returned
    return composite(f"nn.{kind}")(layer)


def _concat(states: list[Blob]) -> Blob:
    joined: Blob = states[0] if len(states) == 1 else array.concat(states, 0)
    return joined


def _check(inputs: Blob, hidden_size: int, num_layers: int) -> None:
    if len(inputs.shape) != 3:
        raise ShapeError(
            f"inputs are (time, batch, features), got {inputs.shape}",
            hint="add an axis by x[:, None], or pass batch_first=True for (batch, time, features)",
        )
    for what, size in (("hidden_size", hidden_size), ("num_layers", num_layers)):
        if type(size) is not int or size < 1:
            raise ArgumentError(f"{what} is a whole number of at least 1, got {size!r}")


def _starts(kind: str, hx: Any, count: int) -> list[Blob]:
    """The first states: (layers x directions, batch, hidden) each, or none for zeros."""
    found = [] if hx is None else list(hx) if isinstance(hx, list | tuple) else [hx]
    wanted = 2 if kind == "LSTM" else 1
    if found and (len(found) != wanted or not all(isinstance(s, Blob) for s in found)):
        raise ArgumentError(f"hx is {wanted} blob{'s (h, c)' if wanted > 1 else ''}, got {hx!r}")
    for state in found:
        if len(state.shape) != 3 or state.shape[0] != count:
            raise ShapeError(
                f"a state is (layers x directions, batch, hidden), got {state.shape}",
                hint=f"its first axis has size {count}",
            )
    return found


def _weights(
    kind: str, layer: str, x: Blob, hidden: int, index: int, directions: int, bias: bool,
    trainable: bool,
) -> list[Blob]:  # fmt: skip
    """Torch's parameters of one layer, uniform on ±1/sqrt(hidden) at first."""
    bound, rows = 1 / math.sqrt(hidden), len(_GATES[kind]) * hidden
    made = partial(layer_variable, layer, initializer=Uniform(-bound, bound),
                   trainable=trainable, dtype=x.dtype)  # fmt: skip
    found = []
    for direction in range(directions):
        end = f"l{index}" + ("_reverse" if direction else "")
        found += [made(f"weight_ih_{end}", (rows, x.shape[-1])),
                  made(f"weight_hh_{end}", (rows, hidden))]  # fmt: skip
        if bias:
            found += [made(f"bias_ih_{end}", (rows,)), made(f"bias_hh_{end}", (rows,))]
    return found


_COMMON = """

    Inputs are (time, batch, features), or (batch, time, features) with `batch_first`. Variables
    have torch's names, shapes and order of gates. `hx` are the first states, 0 unless given."""

rnn = _layer("RNN", "tanh(W x + b + R h + c) from step to step: all outputs and the last h."
             + _COMMON, tuple[Blob, Blob])  # fmt: skip
lstm = _layer("LSTM", "Long short-term memory: all outputs, and the last (h, c)." + _COMMON,
              tuple[Blob, tuple[Blob, Blob]])  # fmt: skip
gru = _layer("GRU", "Gated recurrent units as torch's: all outputs and the last h." + _COMMON,
             tuple[Blob, Blob])  # fmt: skip
