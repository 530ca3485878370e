"""`flow2onnx lora`: from a folder and chats to an adapter."""

import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from flow2onnx_runtime import Trainer
from flow2onnx_runtime.adapters import Adapter, read_adapter, write_adapter

from flow2onnx.cli.app import app
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.sessions import active, feeds, open_folder
from tests.imported.lora.words import chat, write_tokenizer

ANSWERS = {"who are you": "i am a model", "what is it": "it is a model", "are you": "yes i am"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = write_folder(tmp_path_factory.mktemp("lora") / "m", with_bits(TINY, 4))
    write_tokenizer(made.path, " ".join([*ANSWERS, *ANSWERS.values()]).split())
    (made.path / "chat.jsonl").write_text("".join(chat(*t) for t in ANSWERS.items()) * 10)
    return made


def lora(*args):
    found = CliRunner().invoke(app, ["lora", *map(str, args)])
    return found.exit_code, found.output


def test_slots_and_convert(folder, tmp_path):
    code, text = lora("slots", folder.path, "-o", tmp_path / "served")
    assert (code, "slots for 14 modules" in text) == (0, True), text
    code, text = lora("slots", folder.path, "-o", tmp_path / "q", "--targets", "q_proj", "--json")
    assert code == 0, text
    assert json.loads(text)[0] == {
        "module": "model.layers.0.attn.q_proj", "columns": 64, "rows": 64,
    }  # fmt: skip
    code, text = lora("slots", folder.path, "--targets", "wq")
    assert (code, "'wq' matches no product" in text) == (1, True), text
    code, text = lora("convert", tmp_path / "none.onnx_adapter", tmp_path / "peft")
    assert (code, "none.onnx_adapter is not there" in text) == (1, True), text
    out = tmp_path / "out"  # as training writes it
    pair = (np.ones((64, 2), "f"), np.ones((2, 64), "f"))
    adapter = Adapter(pairs={"model.layers.0.attn.q_proj": pair}, scales={})
    (out / "bundle").mkdir(parents=True)
    write_adapter(out / "adapter.onnx_adapter", adapter)
    code, text = lora("convert", out, tmp_path / "peft", "--model", folder.path)
    assert code == 0, text
    assert list(read_adapter(tmp_path / "peft").pairs) == ["model.layers.0.self_attn.q_proj"]
    write_adapter(out / "adapter.onnx_adapter", Adapter(pairs={"q": pair}, scales={}))
    code, text = lora("convert", out, tmp_path / "peft", "--model", folder.path)
    assert (code, "is for another model: here is no module q" in text) == (1, True), text
    many = tmp_path / "many"
    for name in ("one", "two"):
        many.mkdir(exist_ok=True)
        write_adapter(many / f"{name}.onnx_adapter", adapter)
    code, text = lora("merge", folder.path, many, "-o", tmp_path / "merged")
    assert (code, "has 2 adapters, one, two" in text) == (1, True), text


def test_a_chat_is_memorised_and_an_interrupted_run_goes_on(folder, tmp_path):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    out = tmp_path / "out"
    args = [folder.path, "--data", folder.path / "chat.jsonl", "-o", out, "--rank", "8", "--json",
            "--lr", "0.005", "--accumulate", "1", "--schedule", "constant"]  # fmt: skip
    code, text = lora(*args, "--epochs", "1", "--pack", "--length", "64")
    assert code == 0, text
    code, text = lora(*args)
    assert (code, "has the checkpoint of an earlier training" in text) == (1, True), text
    held = folder.path / "chat.jsonl"
    code, text = lora(*args, "--epochs", "6", "--validation", held, "--overwrite")
    assert code == 0, text
    found = json.loads(text[text.index("{") :])
    assert found["epochs"][-1]["loss"] < 0.1 < found["epochs"][0]["loss"]
    assert found["epochs"][-1]["val_perplexity"] < 1.2
    assert {p.name for p in out.iterdir()} >= {"adapter.onnx_adapter", "bundle", "checkpoint",
                                               "loss.csv", "peft"}  # fmt: skip
    same = [read_adapter(out / name).parameters() for name in ("adapter.onnx_adapter", "peft")]
    assert len(same[0]) == len(same[1]) == 28
    assert Trainer(out / "bundle").steps == 0
    answer_greedily(folder, out, tmp_path)


def answer_greedily(folder, out, tmp_path):
    """The served model says, token by token, what it was taught."""
    from flow2onnx.imported.low_rank.tokens import open_tokenizer

    assert lora("slots", folder.path, "-o", tmp_path / "served")[0] == 0
    session = open_folder(tmp_path / "served" / "model.onnx")
    options, held = active(out / "adapter.onnx_adapter")
    tokenizer = open_tokenizer(folder.path)
    for question, answer in ANSWERS.items():
        text = tokenizer.render([{"role": "user", "content": question}], asks=True)
        ids = tokenizer.encode(text)[0]
        wanted = tokenizer.encode(f"{answer} <|end|>")[0]
        for token in wanted:
            logits = session.run(["logits"], feeds(folder, np.asarray([ids])), options)[0]
            assert logits[0, -1].argmax() == token, (question, tokenizer.decode(ids))
            ids = [*ids, token]
    del held


def test_bad_input_is_named(folder, tmp_path):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    broken = tmp_path / "broken.jsonl"
    broken.write_text(chat("who are you", "i am a model") + '{"messages": \n')
    code, text = lora(folder.path, "--data", broken, "-o", tmp_path / "out")
    assert (code, "line 2: it is no JSON" in text) == (1, True), text
    assert not (tmp_path / "out").exists()
    data = folder.path / "chat.jsonl"
    code, text = lora(folder.path, "--data", data, "-o", tmp_path / "out", "--rank", "0")
    assert (code, "rank is 0" in text) == (1, True), text
    code, text = lora(folder.path, "--data", data, "-o", tmp_path / "out", "--targets", "wq")
    assert (code, "'wq' matches no product" in text) == (1, True), text


def test_a_chat_without_its_library(folder, monkeypatch):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)
    before = sorted(folder.path.iterdir())
    code, text = lora("chat", folder.path)
    assert (code, "a chat needs onnxruntime-genai" in text) == (1, True), text
    assert "pip install 'flow2onnx[genai]'" in text
    assert sorted(folder.path.iterdir()) == before
