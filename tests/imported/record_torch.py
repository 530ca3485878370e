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


class Bags(nn.Module):
    """Means of rows of a table, which both exporters write as a loop over bags."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, WIDTH, mode="mean")
        self.out = nn.Linear(WIDTH, 3)

    def forward(self, x, starts):
        return self.out(self.bag(x, starts))


def exported_bags(net, args):
    """The model by each exporter, of fixed sizes."""
    program = torch.onnx.export(net, args, dynamo=True, optimize=False, verbose=False)
    yield "bags-dynamo", program.model_proto
    file = io.BytesIO()
    torch.onnx.export(net, args, file, dynamo=False, input_names=["x", "starts"])
    yield "bags-torchscript", onnx.load_from_string(file.getvalue())


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


def slim(graph):
    """The graph without what tells of the machine and the source."""
    for node in graph.node:
        node.doc_string = ""
        entries = [e for e in node.metadata_props if e.key == "pkg.torch.onnx.name_scopes"]
        del node.metadata_props[:]
        node.metadata_props.extend(entries)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                slim(attribute.g)


def five_losses(net, args, loss):
    """The losses of five steps in torch."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1, 0.9)
    for _ in range(5):
        optimizer.zero_grad()
        value = loss(net(*args))
        value.backward()
        optimizer.step()
        yield value.item()


def write(name, models, record):
    """Write models, and a record of what they are fed and the losses."""
    for form, model in models:
        slim(model.graph)
        onnx.save(model, FOLDER / f"{form}.onnx")
    (FOLDER / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def main():
    """Write the recordings."""
    warnings.simplefilter("ignore")
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    net = Shared().eval()
    x, y = (torch.tensor(rng.integers(0, WORDS, (4, 3))) for _ in range(2))
    models = list(exported(net, x))
    losses = five_losses(net, (x,), lambda s: nn.functional.cross_entropy(s.transpose(1, 2), y))
    write("shared", models, {"x": x.tolist(), "y": y.tolist(), "losses": list(losses)})
    net = Bags().eval()
    x, starts = torch.tensor(rng.integers(0, WORDS, 8)), torch.tensor([0, 3, 5])
    y = torch.tensor([0, 2, 1])
    models = list(exported_bags(net, (x, starts)))
    losses = five_losses(net, (x, starts), lambda s: nn.functional.cross_entropy(s, y))
    record = {"x": x.tolist(), "starts": starts.tolist(), "y": y.tolist(), "losses": list(losses)}
    write("bags", models, record)


if __name__ == "__main__":
    main()
