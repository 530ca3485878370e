"""Train a bundle as one rank, without the compiler: ``trainers.py BUNDLE BATCHES FOLDER [finite]``.

With ``finite`` steps whose loss is not finite on some rank are refused, and counted.
"""

import sys
from pathlib import Path

import numpy as np
from flow2onnx_runtime import DistributedTrainer, NonFiniteError

bundle, batches, folder = sys.argv[1], np.load(sys.argv[2]), Path(sys.argv[3])
trainer = DistributedTrainer(bundle, finite_losses="finite" in sys.argv)
rank, size = trainer.world.rank, trainer.world.size
pairs = list(zip(batches["x"], batches["y"], strict=True))[rank::size]
own, refused = [], []
for step, (x, y) in enumerate(pairs):
    try:
        own.append(next(iter(trainer.step(x, y).values())))
    except NonFiniteError:
        refused.append(step)
trainer.save(folder / "state.safetensors")
assert (folder / "state.safetensors").exists()
assert "flow2onnx" not in sys.modules
found = {"losses": np.array(own), **trainer.state_dict()}
if refused:
    found["refused"] = np.array(refused)
np.savez(folder / f"{rank}.npz", **found)
