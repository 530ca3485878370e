"""Settings of PEFT, each beside what PEFT makes of it on the same model."""

import numpy as np
import pytest

from flow2onnx.imported import adapter_of
from tests.imported.lora.folders import write_folder
from tests.imported.lora.record_peft import CASES, PLACE, SEEN, ours
from tests.imported.lora.record_torch import SMALL, batches

NAMES = [pytest.param(n, marks=() if n == "ranks" else pytest.mark.slow) for n in CASES]


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
    end = adapter_of(trainer).pairs
    for module in SEEN:
        for found, side in zip(end[module], "AB", strict=True):
            np.testing.assert_allclose(found, recorded[f"{name}/{module}/{side}"], atol=2e-4)
