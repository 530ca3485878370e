"""Results of onnxruntime-training for a folder of models; needs that package and nothing of ours.

`python ort_training.py FOLDER` reads NAME.onnx and NAME.npz and writes scores.json: for each name
the losses of two steps by SGD, or the reason why there are none.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

RATE = 0.05
LOSSES = {
    "mse": artifacts.LossType.MSELoss,
    "cross_entropy": artifacts.LossType.CrossEntropyLoss,
}


def losses(path, folder):
    """The losses of two steps."""
    model = onnx.load(path)
    with np.load(path.with_suffix(".npz")) as file:
        arrays = dict(file)
    loss, labels = LOSSES[str(arrays.pop("loss"))], arrays.pop("labels")
    folder.mkdir()
    artifacts.generate_artifacts(
        model, requires_grad=[t.name for t in model.graph.initializer], loss=loss,
        optimizer=artifacts.OptimType.SGD, artifact_directory=str(folder),
    )  # fmt: skip
    state = CheckpointState.load_checkpoint(str(folder / "checkpoint"))
    files = [str(folder / f"{kind}_model.onnx") for kind in ("training", "eval")]
    module = Module(files[0], state, files[1])
    optimizer = Optimizer(str(folder / "optimizer_model.onnx"), module)
    optimizer.set_learning_rate(RATE)
    found = []
    module.train()
    for _ in range(2):
        found.append(float(np.asarray(module(*arrays.values(), labels)).ravel()[0]))
        optimizer.step()
        module.lazy_reset_grad()
    return found


def reason(error):
    """The words of an error of the package, without the place in its sources."""
    text = " ".join(str(error).split())
    told = re.search(r"\[ONNXRuntimeError\] : \d+ : (.+)", text)
    told = told or re.search(r"was false\. (.+)", text)
    told = told or re.search(r"(\S+ \S+ \S+ was false)", text)
    return f"{type(error).__name__}: {told[1] if told else text}"[:160]


def main(folder):
    scores = {}
    for path in sorted(Path(folder).glob("*.onnx")):
        try:
            scores[path.stem] = losses(path, Path(folder, f"{path.stem}.artifacts"))
        except Exception as error:
            scores[path.stem] = reason(error)
    Path(folder, "scores.json").write_text(json.dumps(scores))


if __name__ == "__main__":
    main(sys.argv[1])
