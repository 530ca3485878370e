"""Train a bundle as one rank, without the compiler: ``trainers.py BUNDLE BATCHES FOLDER``."""

import sys
from pathlib import Path

import numpy as np
from flow2onnx_runtime import DistributedTrainer

bundle, batches, folder = sys.argv[1], np.load(sys.argv[2]), Path(sys.argv[3])
trainer = DistributedTrainer(bundle)
rank, size = trainer.world.rank, trainer.world.size
pairs = list(zip(batches["x"], batches["y"], strict=True))[rank::size]
own = [trainer.step(x, y) for x, y in pairs]
trainer.save(folder / "state.safetensors")
assert (folder / "state.safetensors").exists()
assert "flow2onnx" not in sys.modules
losses = [next(iter(results.values())) for results in own]
np.savez(folder / f"{rank}.npz", losses=np.array(losses), **trainer.state_dict())
