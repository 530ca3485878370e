"""Networks of torch: their exports in three forms, and their steps there."""

import copy
import io
import warnings

import numpy as np
import onnx
import torch
from torch.nn import functional as F  # noqa: N812  # as everyone writes

from tests.zoo.origins import RATES, STEPS, ExportError, Origin, Run

__all__ = ["EXPORTERS", "origins"]

EXPORTERS = ("torch", "torch, optimised", "TorchScript")
_LOSSES = {"mse": F.mse_loss, "cross_entropy": F.cross_entropy}
_RULES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


class First(torch.nn.Module):
    """A network as a function to its first tensor of results."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, *inputs):
        return first_tensor(self.net(*inputs))


def first_tensor(found):
    """The first tensor in what a network returns."""
    if isinstance(found, torch.Tensor):
        return found
    parts = found.values() if hasattr(found, "values") else found
    return next(first_tensor(part) for part in parts if part is not None)


def origins(architecture):
    """The network at each of its exporters: pairs of its name and an Origin or an ExportError."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters warn of themselves
        net, inputs = architecture.make()
        net = net.eval()
        with torch.no_grad():
            wanted = net(*inputs)
        labels = _labels(architecture.loss, wanted)
        runs = {rule: _train(net, inputs, labels, architecture.loss, rule) for rule in RATES}
        for exporter in architecture.exporters or EXPORTERS:
            try:
                model = _export(net, inputs, exporter)
            except Exception as error:  # an exporter's may be of any class
                lines = str(error).strip().splitlines() or [type(error).__name__]
                yield exporter, ExportError(f"{type(error).__name__}: {lines[0][:120]}")
                continue
            yield (
                exporter,
                Origin(
                    model=model,
                    feeds=tuple(x.numpy() for x in inputs),
                    labels=labels.numpy(),
                    loss=architecture.loss,
                    first=_weights(net),
                    runs=runs,
                ),
            )


def _labels(loss, wanted):
    if loss == "cross_entropy":
        return torch.randint(0, wanted.shape[1], (wanted.shape[0], *wanted.shape[2:]))
    return torch.randn(wanted.shape)


def _train(net, inputs, labels, loss, rule):
    net = copy.deepcopy(net)
    optimizer = _RULES[rule](net.parameters(), RATES[rule])
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = _LOSSES[loss](net(*inputs), labels)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return Run(tuple(losses), _weights(net))


def _weights(net):
    return {n: np.array(p.detach().numpy()) for n, p in net.named_parameters()}


def _names(net, model):
    """For each parameter the one of its names that the model has, where modules share it."""
    known = {t.name for t in model.graph.initializer}
    found = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        first = next(n for n, p in net.named_parameters() if p is parameter)
        if first not in found or name in known:
            found[first] = name
    return found


def _renamed(weights, names):
    return {names[n]: w for n, w in weights.items()}


def _export(net, inputs, exporter):
    if exporter == "TorchScript":
        file = io.BytesIO()
        torch.onnx.export(net, inputs, file, dynamo=False, opset_version=17)
        return onnx.load_from_string(file.getvalue())
    program = torch.onnx.export(
        net, inputs, dynamo=True, optimize=exporter != "torch", verbose=False
    )
    return program.model_proto
