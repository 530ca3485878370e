"""Train a bundle as one rank: ``trainers.py BUNDLE BATCHES FOLDER [finite] [parts] [anew]``.

The compiler is not imported. With ``finite`` steps whose loss is not finite on some rank are
refused, and counted; with ``parts`` the optimizer's state is kept in parts, which ``anew`` loads
again after each step, as the first rank has it.
"""

import sys
from pathlib import Path

import numpy as np
from flow2onnx_runtime import DistributedTrainer, NonFiniteError

bundle, batches, folder = sys.argv[1], np.load(sys.argv[2]), Path(sys.argv[3])
trainer = DistributedTrainer(
    bundle, finite_losses="finite" in sys.argv, optimizer_in_parts="parts" in sys.argv
)
rank, size = trainer.world.rank, trainer.world.size
pairs = list(zip(batches["x"], batches["y"], strict=True))[rank::size]
own, refused = [], []
for step, (x, y) in enumerate(pairs):
    try:
        own.append(next(iter(trainer.step(x, y).values())))
    except NonFiniteError:
        refused.append(step)
    if "anew" in sys.argv:
        present = trainer.state_dict()
        trainer.load_state_dict({n: v if rank == 0 else v * 0 for n, v in present.items()})
trainer.save(folder / "state.safetensors")
assert (folder / "state.safetensors").exists()
assert "flow2onnx" not in sys.modules
found = {"losses": np.array(own), **trainer.state_dict()}
found["kept bytes"] = np.array([trainer.state.nbytes()])
if refused:
    found["refused"] = np.array(refused)
np.savez(folder / f"{rank}.npz", **found)
