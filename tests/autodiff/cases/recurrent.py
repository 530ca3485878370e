"""Recurrent layers."""

import numpy as np

from tests.autodiff.cases.case import Case

STEPS, BATCH, WIDTH, HIDDEN = 3, 3, 2, 4
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _layer(op_type, note, *, outputs=None, bias=True, lengths=None, initial=True, peep=False,
           activations=None, **attrs):  # fmt: skip
    """A node with as many of its inputs as asked for."""
    gates, count = GATES[op_type], 2 if attrs.get("direction") == "bidirectional" else 1
    outputs = outputs or (3 if op_type == "LSTM" else 2)
    states = (2 if op_type == "LSTM" else 1) if initial else 0
    batched = attrs.get("layout", 0)
    shapes = [
        (BATCH, STEPS, WIDTH) if batched else (STEPS, BATCH, WIDTH),
        (count, gates * HIDDEN, WIDTH),
        (count, gates * HIDDEN, HIDDEN),
    ]
    shapes += [(count, 2 * gates * HIDDEN)] if bias else []
    shapes += [(BATCH, count, HIDDEN) if batched else (count, BATCH, HIDDEN)] * states
    shapes += [(count, 3 * HIDDEN)] if peep else []

    def make(b, x, w, r, *rest):
        rest = list(rest)
        operands = [x, w, r, rest.pop(0) if bias else None]
        operands.append(None if lengths is None else np.asarray(lengths, np.int32))
        operands += [rest.pop(0) for _ in range(states)] or [None] * (1 + (op_type == "LSTM"))
        operands += [rest.pop(0)] if peep else []
        while operands[-1] is None:
            operands.pop()
        if activations is not None:
            attrs["activations"] = activations
        return b.emit(op_type, operands, {"hidden_size": HIDDEN, **attrs}, outputs)

    # the runtime opens double precision, and then refuses to run it
    dtypes = ("float32",) if note else ("float32", "float16")
    return Case(op_type, make, shapes, note, low=-0.8, high=0.8, dtypes=dtypes, step=1e-3)


def _common(op_type):
    return [
        _layer(op_type, ""),
        _layer(op_type, "least", bias=False, initial=False, outputs=1),
        _layer(op_type, "reverse", direction="reverse"),
        _layer(op_type, "both-ways", direction="bidirectional"),
        _layer(op_type, "lengths", lengths=[3, 1, 2]),
        _layer(op_type, "lengths-both-ways", lengths=[2, 3, 1], direction="bidirectional"),
        _layer(op_type, "clip", clip=1.1),
    ]


RECURRENT = [
    *(case for op_type in GATES for case in _common(op_type)),
    _layer("GRU", "reset-after", linear_before_reset=1),
    _layer("GRU", "reset-after-both-ways", linear_before_reset=1, direction="bidirectional",
           lengths=[1, 3, 2]),
    _layer("GRU", "reset-after-least", linear_before_reset=1, bias=False, initial=False),
    _layer("LSTM", "peepholes", peep=True),
    _layer("LSTM", "peepholes-both-ways", peep=True, direction="bidirectional", bias=False),
    _layer("LSTM", "coupled", peep=True, input_forget=1),
    _layer("LSTM", "coupled-plain", input_forget=1, direction="reverse"),
    *(_layer("RNN", name, activations=[name])
      for name in ("Relu", "Sigmoid", "Softsign", "Softplus", "LeakyRelu", "Elu", "HardSigmoid")),
    _layer("RNN", "two", direction="bidirectional", activations=["LeakyRelu", "ScaledTanh"],
           activation_alpha=[0.3, 0.7], activation_beta=[1.3]),
    _layer("RNN", "Affine", activations=["Affine"], activation_alpha=[0.4], activation_beta=[0.1]),
    _layer("RNN", "ThresholdedRelu", activations=["ThresholdedRelu"], activation_alpha=[0.2]),
    _layer("LSTM", "activations", activations=["HardSigmoid", "Softsign", "Relu"],
           activation_alpha=[0.3], activation_beta=[0.4]),
    _layer("GRU", "activations", activations=["Sigmoid", "Relu"]),
]  # fmt: skip
