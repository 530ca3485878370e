"""Adapters of language models on native operators, beside the runtime's own."""

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from flow2onnx_native import accelerator
from flow2onnx_runtime import Options, OptionsError, Trainer

import flow2onnx as flow
from flow2onnx.cli.app import app
from flow2onnx.graph.model import parse_model
from flow2onnx.imported.low_rank.texts import Text, batches_of
from tests.imported.lora import folders
from tests.imported.lora.words import chat, write_tokenizer

PLAIN = Options(intra_op_threads=1)
ROWS, LENGTH = 2, 64
FIXED = replace(PLAIN, native=True, free_dimensions={"batch": ROWS, "sequence": LENGTH})
SETTINGS = "--epochs 4 --accumulate 2 --batch-size 2 --rank 4 --lr 0.01"
SHAPES = {
    "packed": folders.TINY,
    "in 4 bits": replace(folders.TINY, bits=4),
    "apart and normalised": replace(folders.TINY, family="qwen3"),
    "a head of keys for each": replace(folders.TINY, shared=4),
    "one head of keys": replace(folders.TINY, shared=1),
    "with a window": replace(folders.TINY, window=20),
}
FORMS = {
    "weights computed again": {},
    "weights given": {"recompute": False},
    "layers computed again": {"recompute": True},
}


def texts(count: int) -> list[Text]:
    """Texts that end at different places, one of them at the last."""
    draw = np.random.default_rng(3)
    found = []
    for _ in range(2 * count):
        ids = draw.integers(3, folders.TINY.words, draw.integers(9, LENGTH + 1)).tolist()
        found.append(Text(tuple(ids), (True,) * len(ids)))
    return [*found, Text((5,) * LENGTH, (True,) * LENGTH)]


def bundle_of(folder: Path, shape: folders.Shape, **settings: object) -> Path:
    """A bundle of adapters whose B are not zero."""
    folders.write_folder(folder / "model", shape)
    made = flow.lora(
        folder / "model", rank=4, accumulate=False, lr=0.3, optimizer="sgd", **settings
    )
    made.save(folder / "bundle")
    return folder / "bundle"


def train(bundle: Path, options: Options, batches):
    """The losses of steps, and the adapters after them."""
    trainer = Trainer(bundle, options)
    feeds = [feed.name for feed in trainer.feeds]
    losses = [float(trainer.step(**{n: b[n] for n in feeds})["loss"]) for b in batches]
    return np.array(losses), trainer.state_dict()


def operators(bundle: Path, options: Options = FIXED) -> Counter[str]:
    """How many nodes of each operator a step has on native operators."""
    content, _ = accelerator.accelerate(bundle / "step.onnx", options)
    return Counter(node.op_type for node in parse_model(content).graph)


def check(bundle: Path, batches) -> None:
    """Losses and adapters are those of standard operators."""
    want, adapters = train(bundle, PLAIN, batches)
    got, found = train(bundle, FIXED, batches)
    np.testing.assert_allclose(got, want, rtol=2e-5)
    assert abs(want[-1] - want[0]) > 1e-3  # they have moved
    for name, value in adapters.items():
        if name.endswith(".weight"):
            np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=2e-5, err_msg=name)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_steps_are_those_of_the_runtimes_attention(
    tmp_path: Path, shape: folders.Shape, form: dict[str, bool]
) -> None:
    bundle = bundle_of(tmp_path, shape, **form)
    count = operators(bundle)
    assert count["AttentionGradient"] == shape.layers
    assert not count["GroupQueryAttention"]
    assert not count["Softmax"]
    check(bundle, batches_of(texts(3), size=ROWS, length=LENGTH, one_shape=True))


@pytest.mark.usefixtures("package")
def test_texts_that_share_a_row(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, folders.TINY, packs=True)
    assert operators(bundle)["AttentionGradient"] == folders.TINY.layers
    packed = batches_of(texts(4), size=ROWS, length=LENGTH, packs=True, one_shape=True)
    assert any(batch["documents"].max() > 1 for batch in packed)
    check(bundle, packed)


@pytest.mark.usefixtures("package")
def test_a_cap_stays_with_the_runtime(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, replace(folders.TINY, softcap=20.0))
    count = operators(bundle)
    assert count["GroupQueryAttention"]
    assert not count["AttentionGradient"]
    check(bundle, batches_of(texts(2), size=ROWS, length=LENGTH, one_shape=True))


@pytest.mark.usefixtures("package")
def test_weights_stay_in_their_file(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, replace(folders.TINY, bits=4))
    content, options = accelerator.accelerate(bundle / "step.onnx", FIXED)
    model = onnx.load_from_string(content)
    outside = [t.name for t in model.graph.initializer if t.external_data]
    assert any("Q4" in name for name in outside)
    assert str(bundle) in options.session_entries.values()
    assert not options.free_dimensions


@pytest.mark.usefixtures("package")
def test_batches_of_another_shape_are_refused(tmp_path: Path) -> None:
    trainer = Trainer(bundle_of(tmp_path, folders.TINY), FIXED)
    (batch, *_) = batches_of(texts(1), size=ROWS, length=32)
    with pytest.raises(ValueError, match=rf"{ROWS}, {LENGTH}"):
        trainer.step(**{feed.name: batch[feed.name] for feed in trainer.feeds})


@pytest.mark.usefixtures("package")
def test_names_that_no_input_has_are_refused(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, folders.TINY)
    unknown = replace(FIXED, free_dimensions={"length": LENGTH})
    with pytest.raises(OptionsError, match="'length', which no input has") as raised:
        Trainer(bundle, unknown)
    assert "batch, sequence" in str(raised.value)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("pack", [(), ("--pack",)], ids=["apart", "packed"])
def test_the_command_trains_on_native_operators(tmp_path: Path, pack: tuple[str, ...]) -> None:
    folder = folders.write_folder(tmp_path / "m", folders.with_bits(folders.TINY, 4)).path
    write_tokenizer(folder, ["who", "are", "you", "i", "am", "a", "model"])
    data = folder / "chat.jsonl"
    data.write_text(chat("who are you", "i am a model") * 5)
    losses = []
    for native in ((), ("--native",)):
        out = tmp_path / f"out{len(losses)}"
        given = [folder, "--data", data, "-o", out, *SETTINGS.split(), "--sample", "who are you",
                 *pack, *native]  # fmt: skip
        found = CliRunner().invoke(app, ["lora", *map(str, given)])
        assert found.exit_code == 0, found.output
        rows = list(csv.DictReader((out / "loss.csv").read_text().splitlines()))
        losses.append([float(row["loss"]) for row in rows])
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    folders.write_folder(tmp_path / "m", folders.TINY)
    given = [
        "lora",
        str(tmp_path / "m"),
        "--data",
        "x.jsonl",
        "-o",
        str(tmp_path / "o"),
        "--native",
    ]
    found = CliRunner().invoke(app, given)
    assert found.exit_code == 1
    assert "pip install flow2onnx-native" in found.output
