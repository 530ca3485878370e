"""Train adapters as docs/lora.md has it: ``adapters.py BUNDLE BATCHES CHECKPOINT OUTPUT EPOCHS``.

With ``uneven`` each rank takes all that is left of the batches, which are not as many on each.
"""

import json
import sys

import numpy as np
from flow2onnx_runtime import DistributedTrainer
from flow2onnx_runtime.adapters import write_adapter

from flow2onnx.imported import adapter_of

bundle, file, checkpoint, output, epochs = sys.argv[1:6]
arrays = np.load(file)
names = ("input_ids", "attention_mask", "labels", "documents")
batches = [
    {n: arrays[f"{n} {i}"] for n in names if f"{n} {i}" in arrays} for i in range(len(arrays["of"]))
]
trainer = DistributedTrainer(bundle)
rank, size = trainer.world.rank, trainer.world.size
even = len(batches) if "uneven" in sys.argv else len(batches) // size * size
own = batches[rank:even:size]
history = trainer.fit(
    own, int(epochs), accumulate=2, checkpoint=checkpoint, resume=True, shuffle=False,
    progress=False,
)  # fmt: skip
print(json.dumps([row["loss"] for row in history]))
write_adapter(f"{output}/{rank}.onnx_adapter", adapter_of(trainer))
