"""Networks of torch exported in several ways, with the losses of five steps in torch.

`python -m tests.imported.record_torch` writes the models and the losses to `recorded/`; it needs
torch and onnxscript, which the tests that read them do not.
"""

import io
import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

FOLDER = Path(__file__).with_name("recorded")
WORDS, WIDTH = 9, 6


class Shared(nn.Module):
    """Layers used twice, tied weights, zeros and ones that exporters merge, constants of theirs."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.once = nn.Linear(WIDTH, WIDTH)
        self.last = nn.LayerNorm(WIDTH)
        self.whiten = nn.InstanceNorm1d(3)
        self.out = nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = self.words.weight
        for layer in (self.twice, self.once):
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        h = self.norm(self.twice(self.words(x)))
        h = self.norm(self.twice(h).tanh())
        h = self.whiten(self.last(self.once(h)))
        return self.out(h)


def exported(net, x):
    """The model by each exporter."""
    batch = ({0: torch.export.Dim("batch")},)
    for optimize in (False, True):
        program = torch.onnx.export(
            net, (x,), dynamo=True, optimize=optimize, dynamic_shapes=batch, verbose=False
        )
        yield f"dynamo-{'optimized' if optimize else 'raw'}", program.model_proto
    for form in (torch.onnx.TrainingMode.EVAL, torch.onnx.TrainingMode.TRAINING):
        file = io.BytesIO()
        torch.onnx.export(
            net, (x,), file, dynamo=False, training=form, input_names=["x"],
            dynamic_axes={"x": {0: "batch"}},
        )  # fmt: skip
        yield f"torchscript-{form.name.lower()}", onnx.load_from_string(file.getvalue())


def slim(model):
    """The model without what tells of the machine and the source."""
    kept = ("pkg.torch.onnx.name_scopes",)
    for node in model.graph.node:
        node.doc_string = ""
        entries = [e for e in node.metadata_props if e.key in kept]
        del node.metadata_props[:]
        node.metadata_props.extend(entries)
    return model


def main():
    """Write the recordings."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    net = Shared().eval()
    rng = np.random.default_rng(0)
    x = rng.integers(0, WORDS, (4, 3))
    y = rng.integers(0, WORDS, (4, 3))
    FOLDER.mkdir(exist_ok=True)
    for name, model in exported(net, torch.tensor(x)):
        onnx.save(slim(model), FOLDER / f"{name}.onnx")
    optimizer = torch.optim.SGD(net.parameters(), 0.1, 0.9)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.tensor(x)).transpose(1, 2), torch.tensor(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    record = {"x": x.tolist(), "y": y.tolist(), "losses": losses}
    (FOLDER / "shared.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
