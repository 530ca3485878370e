"""The requests here and in onnxruntime-training 1.19.2, as a page of the docs.

`python -m tests.imported.graveyard.score` writes it. The other package has an environment of its
own: `python -m benchmarks.environments ort-training`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import flow2onnx as flow
from benchmarks.environments import interpreter
from tests.imported.graveyard.requests import REQUESTS

PAGE = Path(__file__).parents[3] / "docs" / "graveyard.md"
RATE = 0.05
SAME = 1e-4  # of losses, relative

HEAD = """# Requests to training packages that have ended

Written by `python -m tests.imported.graveyard.score`; do not edit.

Small models with the structure that people asked to train, of opset 17, and two steps of each by
plain SGD: here, and in onnxruntime-training 1.19.2, the last of its line. A loss that both have is
the same within {same:g}. `pytest tests/imported/graveyard` compares our gradients with differences
in double precision. Numbers are those of microsoft/onnxruntime, if no other repository is named.

| asked for | flow2onnx, losses | onnxruntime-training 1.19.2 |
|---|---|---|
"""


def ours(request):
    """The losses of two steps here."""
    loss = request.loss if request.loss == "mse" else "cross_entropy(axis=1)"
    trainer = flow.make_trainable(request.model, loss, "sgd", lr=RATE).trainer()
    batch = (*request.feeds.values(), request.labels)
    return [trainer.step(*batch)["loss"].item() for _ in range(2)]


def theirs(requests):
    """By name the losses of two steps in onnxruntime-training, or why there are none."""
    python = interpreter("ort_training")
    if python is None:
        sys.exit("make its environment: python -m benchmarks.environments ort-training")
    with tempfile.TemporaryDirectory() as folder:
        for request in requests:
            (Path(folder) / f"{request.name}.onnx").write_bytes(request.model.SerializeToString())
            np.savez(
                Path(folder) / f"{request.name}.npz", **request.feeds, labels=request.labels,
                loss=np.array(request.loss),
            )  # fmt: skip
        program = Path(__file__).with_name("ort_training.py")
        subprocess.run([python, str(program), folder], check=True, cwd=folder)
        return json.loads((Path(folder) / "scores.json").read_text())


def page(requests, found, other):
    """The page of the docs."""
    rows = []
    for request in requests:
        score = other[request.name]
        if isinstance(score, str):
            text = score
        else:
            same = np.allclose(score, found[request.name], rtol=SAME)
            text = f"{_losses(score)}{'' if same else ', which differs'}"
        cells = request.asked, _losses(found[request.name]), " ".join(text.split())
        rows.append(f"| {' | '.join(c.replace('|', ' ') for c in cells)} |\n")
    return HEAD.format(same=SAME) + "".join(rows)


def _losses(values):
    return " → ".join(f"{v:.4f}" for v in values)


def main():
    """Train both and write the page."""
    requests = [make() for make in REQUESTS.values()]
    found = {r.name: ours(r) for r in requests}
    PAGE.write_text(page(requests, found, theirs(requests)))


if __name__ == "__main__":
    main()
