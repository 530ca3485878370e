"""Adapters of a language model that several processes train."""

import json

import numpy as np
import pytest
from flow2onnx_runtime import Trainer
from flow2onnx_runtime.adapters import read_adapter

import flow2onnx as flow
from flow2onnx.imported import adapter_of
from flow2onnx.imported.low_rank.texts import Text, batches_of
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.ranks.ranks import ROOT, ends, start_ranks

pytestmark = pytest.mark.slow
RANKS, EPOCHS, ACCUMULATE = 2, 2, 2


def write_batches(path, *, packs):
    """Batches of several lengths, of which one is left over; the others."""
    rng = np.random.default_rng(5)
    texts = [
        Text(tuple(map(int, rng.integers(7, 160, n))), (False,) * 3 + (True,) * (n - 3))
        for n in rng.integers(8, 90, 18 if packs else 9)
    ]
    made = batches_of(texts, size=1, length=96, packs=packs)
    made = made[: len(made) - 1 + len(made) % RANKS]
    arrays = {f"{n} {i}": a for i, batch in enumerate(made) for n, a in batch.items()}
    np.savez(path, of=np.arange(len(made)), **arrays)
    return made[: len(made) // RANKS * RANKS]


@pytest.mark.parametrize("packs", [False, True], ids=["rows", "packed"])
def test_ranks_train_an_adapter_as_one_process_does(packs, tmp_path):
    """And two go on from the checkpoint of an epoch to the same bits."""
    folder = write_folder(tmp_path / "m", with_bits(TINY, 4))
    # AdamW's first step takes the signs of gradients, which rounding turns where they are smallest
    made = flow.lora(folder.path, packs=packs, dropout=0.1, optimizer="sgd", lr=0.5)
    made.save(tmp_path / "bundle")
    batches = write_batches(tmp_path / "batches.npz", packs=packs)
    assert len({b["labels"].shape for b in batches}) > (not packs)
    program = [str(ROOT / "tests/ranks/adapters.py"), str(tmp_path / "bundle"),
               str(tmp_path / "batches.npz")]  # fmt: skip
    found, losses = {}, {}
    for name, runs in (("whole", [EPOCHS]), ("resumed", [1, EPOCHS])):
        (tmp_path / name).mkdir()
        for epochs in runs:
            more = [str(tmp_path / f"checkpoint-{name}"), str(tmp_path / name), str(epochs)]
            results = ends(start_ranks(RANKS, [*program, *more]))
            assert all(status == 0 for status, _, _ in results), results
        losses[name] = [json.loads(printed) for _, printed, _ in results]
        for rank in range(RANKS):
            adapter = read_adapter(tmp_path / name / f"{rank}.onnx_adapter")
            found[name, rank] = adapter.parameters()
    alone = Trainer(tmp_path / "bundle", accumulates=True)
    history = alone.fit(
        batches, EPOCHS, accumulate=ACCUMULATE * RANKS, shuffle=False, progress=False
    )
    expected = adapter_of(alone).parameters()
    for name, value in expected.items():
        np.testing.assert_allclose(found["whole", 0][name], value, rtol=0, atol=2e-6, err_msg=name)
        for other in found.values():
            np.testing.assert_array_equal(other[name], found["whole", 0][name], name)
    assert losses["whole"][0] == losses["resumed"][0]  # whose the checkpoint is
    assert [own[-1] for own in losses["whole"]] == [own[-1] for own in losses["resumed"]]
    mean = np.mean(losses["whole"], axis=0)
    np.testing.assert_allclose(mean, [row["loss"] for row in history], rtol=2e-5)
    assert max(np.abs(v).max() for n, v in expected.items() if "lora_B" in n) > 0.005


def test_ranks_with_other_numbers_of_batches_are_told(tmp_path):
    folder = write_folder(tmp_path / "m", with_bits(TINY, 4))
    flow.lora(folder.path, targets="q_proj").save(tmp_path / "bundle")
    write_batches(tmp_path / "batches.npz", packs=False)
    program = [str(ROOT / "tests/ranks/adapters.py"), str(tmp_path / "bundle"),
               str(tmp_path / "batches.npz"), str(tmp_path / "checkpoint"), str(tmp_path), "1",
               "uneven"]  # fmt: skip
    results = ends(start_ranks(RANKS, program))
    assert all(status for status, _, _ in results), results
    assert any("the number of batches differs" in error for _, _, error in results), results
    assert not (tmp_path / "checkpoint").exists()
