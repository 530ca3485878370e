"""Adapters on the real onnxruntime-genai: what it answers is what was taught, bit for bit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from flow2onnx_runtime.adapters import Adapter, write_adapter

import flow2onnx as flow
from flow2onnx.cli.app import app
from flow2onnx.imported import adapter_of, write_slots
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.sessions import active, feeds, open_folder
from tests.imported.lora.words import chat, write_tokenizer

og = pytest.importorskip("onnxruntime_genai")
pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text().split()[:200]


def page_ids(words):
    """A page of text as tokens, one for each word; the rarest words share one."""
    names = {w: i + 3 for i, w in enumerate(dict.fromkeys(PAGE))}
    return [min(names[w], words - 1) for w in PAGE]


def generated(folder, ids, count, adapter=None):
    """The tokens that genai takes greedily after `ids`."""
    model = og.Model(str(folder))
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(max_length=len(ids) + count, do_sample=False)
    generator = og.Generator(model, parameters)
    if adapter is not None:
        adapters = og.Adapters(model)
        adapters.load(str(adapter), "x")
        generator.set_active_adapter(adapters, "x")
    generator.append_tokens(np.asarray(ids, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    found = [int(t) for t in generator.get_sequence(0)][len(ids) :]
    del generator
    return found


@pytest.mark.parametrize("bits", [None, 4], ids=["real", "four-bits"])
def test_a_page_is_memorised(tmp_path, bits):
    shape = TINY if bits is None else with_bits(TINY, bits)
    folder = write_folder(tmp_path / "m", replace(shape, words=160))
    ids = page_ids(160)
    made = flow.lora(folder.path, rank=16, lr=1e-2, accumulate=False)
    trainer = made.trainer()
    given = {
        "input_ids": np.asarray([ids]), "attention_mask": np.ones((1, len(ids)), np.int64),
        "labels": np.asarray([[*ids[1:], -100]]),
    }  # fmt: skip
    for _ in range(400):
        if float(trainer.step(**given)["loss"]) < 0.02:
            break
    write_adapter(tmp_path / "x.onnx_adapter", adapter_of(trainer))
    write_slots(folder.path)
    prompt = 4
    wanted = ids[prompt:]
    found = generated(folder.path, ids[:prompt], len(wanted), tmp_path / "x.onnx_adapter")
    assert found == wanted
    assert generated(folder.path, ids[:prompt], len(wanted)) != wanted


# not of half precision: there genai's base differs from a plain session's already
@pytest.mark.parametrize("bits", [None, 4, 8])
def test_logits_are_those_of_run_options_bit_for_bit(tmp_path, bits):
    folder = write_folder(tmp_path / "m", TINY if bits is None else with_bits(TINY, bits))
    ids = list(range(5, 17))
    config = json.loads((folder.path / "genai_config.json").read_text())
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = 1  # as the other has
    (folder.path / "genai_config.json").write_text(json.dumps(config))
    base = open_folder(folder.model).run(["logits"], feeds(folder, np.asarray([ids])))[0]
    slots = write_slots(folder.path)
    rng = np.random.default_rng(3)
    pairs = {
        s.module: tuple(
            (0.1 * rng.standard_normal(size)).astype("float32")
            for size in ((s.columns, 4), (4, s.rows))
        )
        for s in slots
    }
    write_adapter(tmp_path / "x.onnx_adapter", Adapter(pairs=pairs, scales={}))
    options, held = active(tmp_path / "x.onnx_adapter")
    session = open_folder(folder.model)
    by_options = session.run(["logits"], feeds(folder, np.asarray([ids])), options)[0]
    model = og.Model(str(folder.path))
    adapters = og.Adapters(model)
    adapters.load(str(tmp_path / "x.onnx_adapter"), "x")
    for name, wanted in ((None, base), ("x", by_options)):
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(max_length=64, do_sample=False)
        generator = og.Generator(model, parameters)
        if name is not None:
            generator.set_active_adapter(adapters, name)
        generator.append_tokens(np.asarray(ids, np.int32))
        found = np.asarray(generator.get_output("logits"))
        np.testing.assert_array_equal(found[:, -1], wanted[:, -1])
        del generator
    assert np.abs(by_options - base).max() > 0.01
    del held


ANSWERS = {"who are you": "i am a model", "what is it": "it is a model", "are you": "yes i am"}


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A folder without slots, and a folder with two adapters that answer otherwise."""
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    place = tmp_path_factory.mktemp("taught")
    folder = write_folder(place / "m", with_bits(TINY, 4))
    words = " ".join([*ANSWERS, *ANSWERS.values(), "no not me"]).split()
    write_tokenizer(folder.path, words)
    for name, answers in (("kind", ANSWERS), ("rude", dict.fromkeys(ANSWERS, "no not me"))):
        data = place / f"{name}.jsonl"
        data.write_text("".join(chat(*t) for t in answers.items()) * 10)
        found = CliRunner().invoke(app, [
            "lora", str(folder.path), "--data", str(data), "-o", str(place / name), "--lr", "0.005",
            "--accumulate", "1", "--schedule", "constant", "--epochs", "5", "--json",
        ])  # fmt: skip
        assert found.exit_code == 0, found.output
        (place / "adapters").mkdir(exist_ok=True)
        (place / name / "adapter.onnx_adapter").rename(place / "adapters" / f"{name}.onnx_adapter")
    return folder, place / "adapters"


def talk(folder, *args, lines):
    found = CliRunner().invoke(
        app, ["lora", "chat", str(folder.path), *map(str, args)], input="\n".join(lines) + "\n"
    )
    return found


def test_a_chat_by_lines(taught):
    folder, adapters = taught
    before = sorted(p.name for p in folder.path.iterdir())
    found = talk(folder, adapters, lines=[
        *ANSWERS, "", "/adapter", "/adapter rude", "are you", "/reset", "what is it",
        "/adapter kind", "what is it", "/system who are you", "/adapter none", "are you",
    ])  # fmt: skip
    assert found.exit_code == 0, found.output
    said = found.stdout.splitlines()
    assert said[0] == "i am a model"
    assert said[3:6] == ["no not me", "no not me", "it is a model"]
    assert len(said) == 7
    assert "* kind\n  rude" in found.stderr
    assert "a new chat, with the base model" in found.stderr
    assert sorted(p.name for p in folder.path.iterdir()) == before


def test_a_chat_as_json_and_its_errors(taught, tmp_path):
    folder, adapters = taught
    found = talk(folder, adapters / "kind.onnx_adapter", "--json", lines=["are you"])
    assert json.loads(found.stdout) == {
        "prompt": "are you", "answer": "yes i am", "adapter": "kind",
    }  # fmt: skip
    found = talk(folder, adapters, lines=["/adapter kimd", "/adapt", "are you"])
    assert found.exit_code == 1
    assert "there is no adapter 'kimd'" in found.stderr
    assert "did you mean kind?" in found.stderr
    assert "there is no command /adapt" in found.stderr
    assert "yes i am" in found.stdout
    found = talk(folder, adapters / "kimd.onnx_adapter", lines=["are you"])
    assert (found.exit_code, "did you mean kind.onnx_adapter" in found.stderr) == (1, True), (
        found.output
    )
    other = Adapter(
        pairs={"model.layers.0.attn.q_proj": (np.ones((4, 2), "f"), np.ones((2, 4), "f"))},
        scales={},
    )
    write_adapter(tmp_path / "other.onnx_adapter", other)
    found = talk(folder, tmp_path / "other.onnx_adapter", lines=["are you"])
    assert (found.exit_code, "is for another model" in found.stderr) == (1, True), found.output
    found = talk(folder, adapters, "--temperature", "-1", lines=[])
    assert (found.exit_code, "temperature is -1" in found.stderr) == (1, True)


def test_an_answer_is_the_same_by_a_generator_that_goes_on(taught):
    folder, adapters = taught
    asked = ["who are you", "what is it", "are you", "/reset", "are you"]
    anew = talk(folder, adapters, lines=asked)  # the context has no room for two answers of 512
    goes_on = talk(folder, adapters, "--max-tokens", 50, lines=asked)
    assert (anew.exit_code, goes_on.exit_code) == (0, 0), goes_on.output
    assert anew.stdout == goes_on.stdout
    drawn = [talk(folder, adapters, "--temperature", 5, "--seed", seed, "--max-tokens", 8,
                  lines=["are you"]).stdout for seed in (1, 1, 2)]  # fmt: skip
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_chat_that_is_too_long(taught):
    folder, adapters = taught
    found = talk(folder, adapters, lines=["who " * 600, "are you"])
    assert (found.exit_code, "the model takes 512" in found.stderr) == (1, True), found.output
    assert found.stdout == "yes i am\n"


def test_adapters_of_several_ranks_and_a_folder_of_peft(taught, tmp_path):
    folder, adapters = taught
    found = talk(folder, adapters.parent / "rude" / "peft", lines=["are you"])
    assert found.stdout == "no not me\n", found.output
    found = talk(folder, lines=[f"/adapter {adapters / 'rude.onnx_adapter'}", "are you"])
    assert found.stdout == "no not me\n", found.output
