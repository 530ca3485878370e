"""Settings of PEFT, each beside what PEFT makes of it on the same model."""

import numpy as np
import pytest

from flow2onnx.imported import adapter_of
from tests.imported.lora.folders import write_folder
from tests.imported.lora.record_peft import CASES, PLACE, SEEN, dropping, ours
from tests.imported.lora.record_torch import SMALL, batches

FAST = ("ranks", "dora")
NAMES = [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_ten_steps_equal_those_of_peft(name, tmp_path):
    folder = write_folder(tmp_path / "m", SMALL)
    trainer = ours(folder.path, name).trainer()
    recorded = np.load(PLACE)
    losses = []
    for ids, labels in batches(SMALL):
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}
        losses.append(float(trainer.step(**given)["loss"]))
    np.testing.assert_allclose(losses, recorded[f"{name}/losses"], rtol=2e-5)
    end = adapter_of(trainer)
    assert end.is_dora == name.startswith("dora")
    apart = 2e-6 if name == "sgd" else 2e-4
    for module in SEEN:
        values = dict(zip("AB", end.pairs[module], strict=True))
        if end.is_dora:
            values["magnitude"] = end.magnitudes[module]
        for side, found in values.items():
            np.testing.assert_allclose(found, recorded[f"{name}/{module}/{side}"], atol=apart)


@pytest.mark.slow
def test_dropout_draws_losses_as_peft_does(tmp_path):
    folder = write_folder(tmp_path / "m", SMALL)
    trainer = dropping(folder.path).trainer()
    ids, labels = next(iter(batches(SMALL)))
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}
    wanted = np.load(PLACE)["dropout/losses"]
    found = np.asarray([float(trainer.step(**given)["loss"]) for _ in wanted])
    assert len(set(found)) > 0.9 * len(found)
    spread = np.std(wanted)
    # both are drawn: the mean's error is that of each, and the spread's is a share of it
    assert abs(found.mean() - wanted.mean()) < 4 * spread * (2 / len(wanted)) ** 0.5
    assert abs(found.std() / spread - 1) < 4 * (1 / len(wanted)) ** 0.5
    whole = dropping(folder.path).predicts[0]
    assert not any(node.op_type == "Dropout" for node in whole.model.graph)
