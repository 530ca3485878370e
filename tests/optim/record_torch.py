"""Write torch_optimizers.npz: what torch's optimizers make of the network in twenty steps, and the
rates that its schedules give.

    python -m tests.optim.record_torch    # in an environment with torch 2.9 or newer
"""

from pathlib import Path
from unittest import mock

import numpy as np
import torch

from tests.optim.torch_cases import CASES, LENGTH, RATE, SCHEDULES, batches, weights

PATH = Path(__file__).with_name("torch_optimizers.npz")


def loss_of(w, x, y):
    """The mean squared error of the network."""
    out = (torch.tanh(x @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]) * w["scale"]
    return torch.nn.functional.mse_loss(out, y)


def steps(kind, settings, of_matrices=None, dtype=torch.float64):
    """The weights after each of twenty steps; torch's Muon iterates in their type here too."""
    w = {n: torch.tensor(v, dtype=dtype, requires_grad=True) for n, v in weights().items()}
    matrices = [v for v in w.values() if v.dim() == 2] if of_matrices else []
    others = [v for v in w.values() if v.dim() != 2 or not of_matrices]
    optimizers = [getattr(torch.optim, kind)(others, **settings)]
    if of_matrices:
        optimizers.append(getattr(torch.optim, of_matrices[0])(matrices, **of_matrices[1]))
    for x, y in batches():
        for v in w.values():
            v.grad = None
        loss_of(w, torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype)).backward()
        with mock.patch.object(torch, "bfloat16", dtype):
            for optimizer in optimizers:
                optimizer.step()
        yield w


def trained(*case, dtype=torch.float64):
    """The weights after twenty steps."""
    for w in steps(*case, dtype=dtype):
        last = w
    return {n: v.detach().numpy() for n, v in last.items()}


def averaged(*case, decay, dtype):
    """The averages of the weights after twenty steps, by torch's AveragedModel."""
    module = average = None
    for w in steps(*case, dtype=dtype):
        if average is None:
            module = torch.nn.Module()
            for name, value in w.items():
                module.register_parameter(name, torch.nn.Parameter(value.detach()))
            rule = torch.optim.swa_utils.get_ema_multi_avg_fn(decay)
            average = torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=rule)
        with torch.no_grad():
            for name, value in w.items():
                getattr(module, name).copy_(value)
        average.update_parameters(module)
    return {n: v.detach().numpy() for n, v in average.module.named_parameters()}


def rates(kind, settings):
    """The rates of a schedule at the first steps."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=RATE, momentum=0.9)
    if kind == "OneCycleLR":
        settings = {**settings, "cycle_momentum": False}
    schedule, found = getattr(torch.optim.lr_scheduler, kind)(optimizer, **settings), []
    for _ in range(LENGTH):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(found) < LENGTH:  # one cycle refuses more
            schedule.step()
    return np.array(found)


def recorded():
    """All values by ``case/weight`` or ``schedule/case``."""
    weights_found = {
        f"{case}/{name}": value
        for case, (_, *torchs) in CASES.items()
        for name, value in trained(*torchs).items()
    }
    return weights_found | {f"schedule/{n}": rates(*s[1:]) for n, s in SCHEDULES.items()}


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    np.savez_compressed(PATH, **recorded())
