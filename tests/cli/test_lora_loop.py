"""What `flow2onnx lora` tells while it trains, and how it goes on after it was killed."""

import csv
import json
import math
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from flow2onnx_runtime import Trainer
from flow2onnx_runtime.adapters import read_adapter

from flow2onnx.cli.app import app
from flow2onnx.cli.lora_training import read_batches
from flow2onnx.imported.low_rank.tokens import open_tokenizer
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.words import chat, write_tokenizer

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

ANSWERS = {"who are you": "i am a model", "what is it": "it is a model", "are you": "yes i am"}
SETTINGS = {"all_tokens": False, "batch_size": 1, "length": 512, "pack": False, "seed": 0}
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
