"""Activations that a model ends in, beside losses that apply one themselves."""

from collections.abc import Mapping
from dataclasses import dataclass

from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.imported.losses import NamedLoss
from flow2onnx.onnx_io.append import append_again
from flow2onnx.onnx_io.foreign import ForeignModel

__all__ = [
    "LastActivation",
    "last_activation",
    "logits_of",
    "skipped_activation",
    "twice_activated",
]

_ACTIVATIONS = ("LogSoftmax", "Sigmoid", "Softmax")
# What keeps every number, and so may stand between an activation and the output.
_KEEPS = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
# What each loss makes of scores itself, and the activations that it then finds there already.
_SIGMOID = ("a sigmoid", ("LogSoftmax", "Sigmoid", "Softmax"))
_SOFTMAX = ("a softmax", ("Sigmoid", "Softmax"))
_OWN = {
    "bce_with_logits": _SIGMOID,
    "cross_entropy": _SOFTMAX,
    "ctc": _SOFTMAX,
    "dice": _SIGMOID,
    "focal": _SIGMOID,
    "softmax_focal": _SOFTMAX,
}
# The setting by which a loss applies an activation or not, and its default.
_SWITCHES = {"ctc": ("logits", False), "dice": ("sigmoid", True)}
# Losses that take logarithms of probabilities, and what takes scores in their place.
_OF_LOGARITHMS = {"ctc": "ctc(logits=True)", "kl": "cross_entropy", "nll": "cross_entropy"}


@dataclass(frozen=True)
class LastActivation:
    """The activation that an output of a model ends in: operator, what it reads, what it makes."""

    op_type: str
    scores: str
    result: str


def last_activation(foreign: ForeignModel, output: str) -> LastActivation | None:
    """The activation that an output ends in; None for none."""
    makers = {str(o.name): node for node in foreign.graph for o in node.outputs if o.name}
    node, is_logarithm = makers.get(output), False
    while node is not None and not node.domain:
        x = node.inputs[0] if node.inputs else None
        if x is None:
            return None
        if node.op_type in _ACTIVATIONS:
            kind = "LogSoftmax" if is_logarithm and node.op_type == "Softmax" else node.op_type
            return LastActivation(kind, str(x.name), str(node.outputs[0].name))
        is_logarithm = is_logarithm or node.op_type == "Log"
        node = makers.get(str(x.name)) if node.op_type in (*_KEEPS, "Log") else None
    return None


def twice_activated(loss: NamedLoss, output: str, found: LastActivation | None) -> str | None:
    """The warning for a loss of an output that ends in an activation it applies too, or None."""
    kind, own = found.op_type if found is not None else "", _own(loss)
    if own is not None and kind in own[1]:
        return (
            f"output {output} ends in {kind}, and {loss.name} applies {own[0]} of its "
            "own: pass logits=True to train on what goes in there, or take a loss of probabilities"
        )
    if own is None and loss.name in _OF_LOGARITHMS and kind in ("Sigmoid", "Softmax"):
        instead = _OF_LOGARITHMS[loss.name]
        if kind == "Sigmoid" and instead == "cross_entropy":
            instead = "bce_with_logits"
        return (
            f"output {output} ends in {kind}, and {loss.name} takes logarithms: pass "
            f"{instead!r} and logits=True"
        )
    return None


def _own(loss: NamedLoss) -> tuple[str, tuple[str, ...]] | None:
    """The activation that a loss applies to scores itself, with those that are the same already."""
    setting, default = _SWITCHES.get(loss.name, ("", True))
    return _OWN.get(loss.name) if loss.settings.get(setting, default) else None


def skipped_activation(loss: object, output: str, found: LastActivation | None) -> LastActivation:
    """The activation to leave out for a loss; raises where there is none, or that needs it."""
    if not isinstance(loss, NamedLoss) or _own(loss) is None:
        raise ArgumentError(
            f"logits=True is for {' and '.join(sorted(_OWN))}, which apply an activation of their "
            "own",
            hint="leave it out",
        )
    if found is None:
        raise ArgumentError(
            f"logits=True: output {output} ends in no {', '.join(_ACTIVATIONS)}",
            hint="leave it out if the output is scores already",
        )
    return found


def logits_of(
    b: Builder,
    foreign: ForeignModel,
    made: Mapping[str, Value],
    output: str,
    activation: LastActivation,
) -> Value:
    """The output as it were without its activation."""
    scores = made[activation.scores]
    if output == activation.result:
        return scores
    return append_again(b, foreign, None, {activation.result: scores}, made, output)
