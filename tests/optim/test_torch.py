"""Optimizers by name beside the torch that is installed: recorded values, defaults, float32."""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")

if not hasattr(torch.optim, "Muon"):
    pytest.skip("torch has Muon from 2.9", allow_module_level=True)

import flow2onnx as flow  # noqa: E402  # after the check that torch is there
from flow2onnx.optim.named import OPTIMIZERS  # noqa: E402
from tests.optim import networks, record_torch  # noqa: E402
from tests.optim.test_named import RECORDED, group_of  # noqa: E402
from tests.optim.torch_cases import CASES, SCHEDULES, batches, weights  # noqa: E402

NAMES = {"beta1": ("betas", 0), "beta2": ("betas", 1)}
OURS = {"adamw_lr", "adamw_beta1", "adamw_beta2", "adamw_eps", "adjust_lr",
        "decoupled_weight_decay"}  # fmt: skip


@pytest.fixture
def float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def test_recorded_values_are_what_torch_gives(float64):
    found = record_torch.recorded()
    assert set(found) == set(RECORDED)
    for name, value in found.items():
        np.testing.assert_allclose(value, RECORDED[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n not in ("lion", "lamb", "lars")])
def test_defaults_are_torchs(name):
    kinds = {text.partition("(")[0]: kind for text, kind, *_ in CASES.values()}
    kind = getattr(torch.optim, "Muon" if name == "muon" else kinds[name])
    theirs = inspect.signature(kind).parameters
    for setting, parameter in inspect.signature(OPTIMIZERS[name]).parameters.items():
        if setting not in OURS:
            other, *place = NAMES.get(setting, (setting,))
            default = theirs[other].default
            assert parameter.default == (default[place[0]] if place else default), setting


@pytest.fixture(scope="module")
def single():
    """The weights of all cases in float32."""
    groups = {f"{case}.*": group_of(row[0]) for case, row in CASES.items()}
    model = networks.copies(CASES, weights(), np.float32)
    optimizer = flow.optimizer.named("sgd", groups=groups, ema=0.75)
    trainer = flow.make_trainable(model, "loss", optimizer, trained="*").trainer()
    for x, y in batches():
        trainer.step(np.float32(x), np.float32(y))
    return trainer.state_dict()


@pytest.mark.parametrize("case", CASES)
def test_steps_in_float32(case, single):
    found = record_torch.trained(*CASES[case][1:], dtype=torch.float32)
    for name, value in found.items():
        np.testing.assert_allclose(single[f"{case}.{name}"], value, rtol=1e-6, atol=1e-6)


def test_averages_of_weights(single):
    found = record_torch.averaged(*CASES["adam"][1:], decay=0.75, dtype=torch.float32)
    for name, value in found.items():
        np.testing.assert_allclose(single[f"adam.{name}-ema"], value, rtol=1e-5, atol=1e-6)


def test_schedules_are_the_installed_ones():
    for case, (_, kind, settings) in SCHEDULES.items():
        np.testing.assert_allclose(record_torch.rates(kind, settings), RECORDED[f"schedule/{case}"])
