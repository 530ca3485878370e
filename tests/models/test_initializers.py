"""No exported network carries an initializer that none of its nodes reads."""

import onnx
import pytest
from onnx import AttributeProto, GraphProto

from models import dcgan
from tests.models.zoo import ROWS

FAST = ("mlp", "gpt")
EXPORTED = [
    pytest.param(r, id=r.name, marks=[pytest.mark.slow] * (r.name not in FAST)) for r in ROWS
]


def graphs(graph: GraphProto):
    """A graph and those in the attributes of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def unused(model):
    """The initializers that no node reads and no graph gives out."""
    every = list(graphs(model.graph))
    read = {name for g in every for node in g.node for name in node.input}
    read |= {output.name for g in every for output in g.output}
    stored = {
        t.name for g in every for t in (*g.initializer, *(s.values for s in g.sparse_initializer))
    }
    return sorted(stored - read)


def unused_in(folder):
    """The unused initializers of each model in a folder that has some."""
    found = {str(p.relative_to(folder)): unused(onnx.load(p)) for p in folder.rglob("*.onnx")}
    assert len(found) >= 4  # init, step, predict, and a predict job alone
    return {name: names for name, names in found.items() if names}


@pytest.mark.parametrize("row", EXPORTED)
def test_no_initializer_is_unused(row, tmp_path):
    jobs = row.small()
    jobs.predict.export(tmp_path / "model.onnx")
    jobs.train.export(tmp_path / "bundle", predict=jobs.predict)
    assert unused_in(tmp_path) == {}


@pytest.mark.slow
def test_no_initializer_of_a_pair_of_adversaries_is_unused(tmp_path):
    jobs = dcgan.jobs(batch=4, rate=1e-3, channels=16)
    jobs.predict.export(tmp_path / "model.onnx")
    jobs.train_generator.export(tmp_path / "generator", predict=jobs.predict)
    jobs.train_discriminator.export(tmp_path / "discriminator", predict=jobs.predict)
    assert unused_in(tmp_path) == {}


def test_one_that_is_left_over_is_found():
    graph = onnx.parser.parse_graph(
        "g (float[2] x) => (float[2] y) <float[2] kept = {1, 2}, float[2] left = {1, 2}>"
        " { y = Add(x, kept) }"
    )
    assert unused(onnx.helper.make_model(graph)) == ["left"]
