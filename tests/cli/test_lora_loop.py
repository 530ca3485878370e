"""Lines that `flow2onnx lora` tells while it trains, and its way on after it was killed."""

import csv
import errno
import json
import math
import os
import re
import signal
import subprocess
import sys

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from flow2onnx_runtime import Loop, Trainer, files
from flow2onnx_runtime.adapters import read_adapter
from flow2onnx_runtime.token_log import TokenLog
from onnx import TensorProto, helper

from flow2onnx.cli.app import app
from flow2onnx.cli.lora_training import read_batches
from flow2onnx.imported import training_memory
from flow2onnx.imported.low_rank.tokens import open_tokenizer
from tests.cli.interruption import interrupt_after
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.test_layouts import Decoder
from tests.imported.lora.words import chat, write_tokenizer

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

ANSWERS = {"who are you": "i am a model", "what is it": "it is a model", "are you": "yes i am"}
SETTINGS = {"all_tokens": False, "batch_size": 1, "length": 512, "native": False, "pack": False,
            "seed": 0}  # fmt: skip
FAST = ("--lr", "0.005", "--schedule", "constant", "--json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = write_folder(tmp_path_factory.mktemp("lora") / "m", with_bits(TINY, 4))
    write_tokenizer(made.path, " ".join([*ANSWERS, *ANSWERS.values()]).split())
    (made.path / "chat.jsonl").write_text("".join(chat(*t) for t in ANSWERS.items()) * 3)
    return made


def lora(*args):
    found = CliRunner().invoke(app, ["lora", *map(str, args)])
    return found.exit_code, found.output


def rows(path):
    with path.open() as file:
        return [{n: float(v) for n, v in row.items() if v} for row in csv.DictReader(file)]


def losses(bundle, state, batches):
    """The loss of each batch and how many tokens count in it, for a state."""
    trainer = Trainer(bundle)
    trainer.load(state)
    found = [float(trainer.predict(**b)["loss"]) for b in batches]
    return found, [int((b["labels"] != -100).sum()) for b in batches]


def test_the_loop_tells_what_people_ask_for(folder, tmp_path):
    out, data = tmp_path / "out", folder.path / "chat.jsonl"
    held = tmp_path / "held.jsonl"
    held.write_text(chat("are you", "yes i am") + chat("who are you", "i am a model i am a model"))
    code, text = lora(
        folder.path, "--data", data, "-o", out, *FAST, "--epochs", 8, "--accumulate", 4,
        "--validation", held, "--validate-every", 2, "--tensorboard", tmp_path / "board",
        "--sample", "are you", "--early-stopping", 8, "--every", 1,
    )  # fmt: skip
    assert code == 0, text
    told = json.loads(text[text.index("{") :])
    steps, epochs = rows(out / "steps.csv"), rows(out / "loss.csv")
    batches = read_batches(data, open_tokenizer(folder.path), SETTINGS)
    assert [r["step"] for r in steps] == list(range(1, 25))  # 9 batches: 4, 4 and 1
    assert steps[-1]["tokens"] == 8 * sum(int(b["attention_mask"].sum()) for b in batches)
    assert all(("val_loss" in r) == (r["step"] % 2 == 0 or r["step"] % 3 == 0) for r in steps)
    for row in (*epochs, *(r for r in steps if "val_loss" in r)):
        assert math.isclose(row["val_perplexity"], math.exp(row["val_loss"]), rel_tol=1e-9)
        assert row["tokens_per_second"] > 0
        assert row["memory_mb"] > 10
    best = min(epochs, key=lambda row: row["val_loss"])
    apart, counts = losses(
        out / "bundle", out / "checkpoint" / "state.safetensors",
        read_batches(held, open_tokenizer(folder.path), SETTINGS),
    )  # fmt: skip
    assert len(set(counts)) == 2  # so that a mean of batches is another number
    mean = float(np.average(apart, weights=counts))
    assert math.isclose(epochs[-1]["val_loss"], mean, rel_tol=1e-6)
    assert best["val_loss"] <= epochs[-1]["val_loss"]
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert samples == told["samples"]
    assert [s["step"] for s in samples] == list(range(3, 25, 3))
    assert samples[-1]["text"] == "yes i am"
    assert len(list((tmp_path / "board").iterdir())) == 1
    assert not [p.name for p in out.iterdir() if p.name.startswith(".")]


def test_a_line_for_each_epoch_and_sample(folder, tmp_path):
    data = folder.path / "chat.jsonl"
    found = CliRunner().invoke(app, [
        "lora", str(folder.path), "--data", str(data), "-o", str(tmp_path / "out"),
        "--length", "10", "--sample", "are you", "--sample-every", "1", "--sample-tokens", "2",
        "--validation", str(data), "--targets", "q_proj",
    ])  # fmt: skip
    assert found.exit_code == 0, found.output
    assert "6 of 9 texts are longer than 10 tokens and cut" in found.stderr
    assert "training  epoch 1  step 1  loss " in found.stderr
    for part in ("val_loss ", "val_perplexity ", " tokens/s", " MB"):
        assert part in found.stderr
    assert "step 1  'are you' -> '" in found.stderr
    assert "the adapter is" in found.stdout


def test_other_data_are_no_resumption(folder, tmp_path):
    out, data = tmp_path / "out", folder.path / "chat.jsonl"
    args = [folder.path, "-o", out, *FAST, "--targets", "q_proj"]
    assert lora(*args, "--data", data)[0] == 0
    before = (out / "adapter.onnx_adapter").read_bytes()
    other = tmp_path / "other.jsonl"
    other.write_text(chat("are you", "i am a model"))
    code, text = lora(*args, "--data", other, "--resume", "--accumulate", 9, "--epochs", 2)
    assert (code, "a training on other data" in text or "accumulate=" in text) == (1, True), text
    code, text = lora(*args, "--data", data, "--resume", "--length", 9, "--epochs", 2)
    assert (code, "a training on other data" in text) == (1, True), text
    for option, value in (("--rank", 4), ("--lr", "0.01"), ("--targets", "k_proj")):
        code, text = lora(*args, "--data", data, "--resume", option, value, "--epochs", 2)
        found = f"the checkpoint was written with {option} " in text
        assert (code, found) == (1, True), text
    assert (out / "adapter.onnx_adapter").read_bytes() == before


WHOLE = "from flow2onnx.cli import main; main()"
KILLED = """
import os, signal
from flow2onnx_runtime.loop import Loop
from flow2onnx.cli import main
save, saves = Loop.save, []
def save_or_die(loop, folder):
    saves.append(folder)
    if len(saves) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    save(loop, folder)
Loop.save = save_or_die
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_killed_run_goes_on_bit_for_bit(folder, tmp_path, accumulate):
    def run(out, *more, program=WHOLE):
        command = [sys.executable, "-c", program, "lora", folder.path, "--data",
                   folder.path / "chat.jsonl", "-o", out, "--epochs", 2, "--every", 2, "--lr",
                   "0.005", "--accumulate", accumulate, "--dropout", "0.1", "--validation",
                   folder.path / "chat.jsonl", "--early-stopping", 5, *more]  # fmt: skip
        return subprocess.run([str(c) for c in command], check=False).returncode

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(whole) == 0
    assert run(broken, program=KILLED) == -signal.SIGKILL
    assert not (broken / "adapter.onnx_adapter").exists()
    assert run(broken, "--resume") == 0
    one, two = (read_adapter(p / "adapter.onnx_adapter").parameters() for p in (whole, broken))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    same = ("step", "epoch", "loss", "tokens", "val_loss")
    for name in ("steps.csv", "loss.csv"):
        found = [[{n: r.get(n) for n in same} for r in rows(p / name)] for p in (whole, broken)]
        assert found[0] == found[1]


def interrupted(*given):
    raise KeyboardInterrupt


def test_ctrl_c_and_a_full_disk_lose_nothing(folder, tmp_path, monkeypatch):
    data, whole, out = folder.path / "chat.jsonl", tmp_path / "whole", tmp_path / "out"
    args = [folder.path, "--data", data, "--targets", "q_proj", *FAST, "--every", 1]
    assert lora(*args, "-o", whole, "--accumulate", 2)[0] == 0
    with monkeypatch.context() as patch:
        interrupt_after(patch, TokenLog, 5)
        code, text = lora(*args, "-o", out, "--accumulate", 2)
    assert (code, "interrupted after 2 steps; --resume" in text) == (130, True), text
    before = (out / "adapter.onnx_adapter").read_bytes()
    with monkeypatch.context() as patch:  # while the checkpoint is read
        patch.setattr(Loop, "resume", interrupted)
        code, text = lora(*args, "-o", out, "--accumulate", 2, "--resume")
    assert (code, "interrupted before the first step" in text) == (130, True), text
    assert (out / "adapter.onnx_adapter").read_bytes() == before

    def full(*given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # as the bundle is written, which says so itself, and a checkpoint
    for where, name, hint in ((files.os, "fsync", "free space"), (TokenLog, "write", "--resume")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, full)
            code, text = lora(*args, "-o", out, "--accumulate", 2, "--resume")
        assert (code, "No space left on device" in text, hint in text) == (1, True, True), text
    assert lora(*args, "-o", out, "--accumulate", 2, "--resume")[0] == 0
    one, two = ((p / "adapter.onnx_adapter").read_bytes() for p in (whole, out))
    assert one == two
    assert [r["loss"] for r in rows(whole / "steps.csv")] == [
        r["loss"] for r in rows(out / "steps.csv")
    ]


def text_row(words):
    return json.dumps({"text": words}, ensure_ascii=False).encode() + b"\n"


def fix_batch(model, rows):
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = rows


def read_kinds(model):
    """Read a kind of each token, as BERT does."""
    kinds = helper.make_tensor_value_info(
        "token_type_ids", TensorProto.INT64, ["batch", "sequence"]
    )
    model.graph.input.append(kinds)
    words = next(n for n in model.graph.node if n.output[0] == "words")
    words.input[1] = "ids"
    both = helper.make_node("Add", ["input_ids", "token_type_ids"], ["ids"], "/ids")
    model.graph.node.insert(0, both)


@pytest.mark.parametrize(
    ("content", "args", "match"),
    [
        (b"", (), "has no text of which a token counts"),
        (b"\n \n", (), "has no text of which a token counts"),
        (text_row("i am") + b'{"text": "\xff"}\n', (), "line 2: it is no UTF-8"),
        (text_row("i am") + b"[" * 100_000, (), "line 2: it is no JSON"),
        (text_row("i am"), ("--length", "1"), "batches of 1 rows of 1 tokens"),
        (text_row("i am"), ("--epochs", "0"), "--epochs is 0"),
        (text_row("i am"), ("--seed", "-1"), "seed is -1"),
        (text_row("i am"), ("--rank", "0"), "rank is 0"),
        (text_row("i am"), ("--rank", "65"), "a matrix of"),
        (text_row("i am"), ("--lr", "1e40"), "lr is 1e+40"),
        (text_row("i am " * 300), ("--length", "600"), "takes 512"),
        (text_row("i am"), ("--sample", "i am " * 300), "a prompt has 60"),
        (text_row("i am"), ("--targets", "wq"), "'wq' matches no product"),
        (text_row("i am"), ("--sample-every", "0", "--sample", "i"), "--sample-every is 0"),
        (text_row("i am"), ("--validation", "nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
        (text_row("i am"), ("--start", "nowhere.onnx_adapter"), "is not there"),
        (json.dumps({"prompt": "i am a model " * 9, "completion": "yes"}).encode(),
         ("--length", "8"), "no token counts among the first 8"),
    ],
)  # fmt: skip
def test_bad_input_leaves_no_folder(folder, tmp_path, content, args, match):
    data = tmp_path / "data.jsonl"
    data.write_bytes(content)
    code, text = lora(folder.path, "--data", data, "-o", tmp_path / "out", *args)
    assert (code, match in text) == (1, True), text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--validate-every", "--sample-every", "--sample-tokens"])
def test_options_that_say_nothing_alone_are_refused(folder, tmp_path, option):
    args = ["--data", folder.path / "chat.jsonl", "-o", tmp_path / "out"]
    code, text = lora(folder.path, *args, option, 3)
    assert (code, f"{option} is for --" in text) == (2, True), text


def test_several_processes_are_told_what_to_do(folder, tmp_path, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    args = ["--data", folder.path / "chat.jsonl", "-o", tmp_path / "out"]
    code, text = lora(folder.path, *args)
    assert (code, "trains in one process, and this is rank 1 of 2" in text) == (1, True), text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda model: fix_batch(model, 2), "takes 2 rows at a time, and a batch has 1"),
        (read_kinds, "reads token_type_ids, which texts do not say"),
    ],
    ids=["rows", "inputs"],
)
def test_models_that_texts_do_not_fit_are_named(tmp_path, change, match):
    model = Decoder().model()
    change(model)
    onnx.save(model, tmp_path / "model.onnx")
    write_tokenizer(tmp_path, ["i", "am", "a", "model"])
    (tmp_path / "data.jsonl").write_bytes(text_row("i am a model"))
    code, text = lora(tmp_path / "model.onnx", "--data", tmp_path / "data.jsonl", "--accumulate",
                      1, "-o", tmp_path / "out")  # fmt: skip
    assert (code, match in text) == (1, True), text
    assert not (tmp_path / "out").exists()


def test_other_folders_are_named(folder, tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_bytes(text_row("i am\u2028 a model"))  # an end of line within a text
    args = ["--data", data, "--targets", "q_proj", "--json"]
    (tmp_path / "file").write_text("")
    code, text = lora(folder.path, *args, "-o", tmp_path / "file")
    assert (code, "cannot be written: File exists" in text) == (1, True), text
    assert "give a place where files can be written" in text
    other = write_folder(tmp_path / "other", with_bits(TINY, 4))
    write_tokenizer(other.path, [f"w{i}" for i in range(400)])
    data.write_bytes(text_row("w1 w300"))
    code, text = lora(other.path, *args, "-o", tmp_path / "out")
    assert (code, "has the token 307" in text or "have the token 307" in text) == (1, True), text
    config = json.loads((other.path / "genai_config.json").read_text())
    config["model"]["type"] = "mamba"
    (other.path / "genai_config.json").write_text(json.dumps(config))
    code, text = lora(other.path, *args, "-o", tmp_path / "out")
    assert (code, "type 'mamba' are not known" in text) == (1, True), text
    config["model"]["decoder"]["outputs"] = ["logits"]
    (other.path / "genai_config.json").write_text(json.dumps(config))
    code, text = lora(other.path, *args, "-o", tmp_path / "out")
    assert (code, "it names no outputs of the decoder" in text) == (1, True), text
    config["model"] |= {"type": "llama", "context_length": "many"}
    config["model"]["decoder"]["outputs"] = {"logits": "logits"}
    (other.path / "genai_config.json").write_text(json.dumps(config))
    code, text = lora(other.path, *args, "-o", tmp_path / "out")
    assert (code, "context_length is 'many', which is no number" in text) == (1, True), text
    code, text = lora(tmp_path / "nowhere", *args, "-o", tmp_path / "out")
    assert (code, "nowhere is not there" in text) == (1, True), text
    assert not (tmp_path / "out").exists()


def test_too_little_memory_is_told_before_anything_is_written(folder, tmp_path, monkeypatch):
    def told(*more):
        code, text = lora(folder.path, "--data", folder.path / "chat.jsonl", "-o", tmp_path / "out",
                          "--targets", "q_proj", *more)  # fmt: skip
        assert code == 1, text
        found = re.search(r"a step at (.*) needs about ([\d,]+) MiB, and there are 0 MiB", text)
        assert found, text
        return found[1], int(found[2].replace(",", ""))

    monkeypatch.setattr(training_memory, "free_bytes", lambda: 1000)
    few = told()
    many = told("--batch-size", 9)
    assert (few[0], many[0]) == ("1 batch of 32 sequence", "9 batch of 32 sequence")
    assert many[1] > few[1]
    assert not (tmp_path / "out").exists()
