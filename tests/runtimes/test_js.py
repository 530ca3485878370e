"""The JavaScript runtime: its own tests in Node and Chromium, and what it shares with Python."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flow2onnx_runtime import FileEntry, Manifest, Options, StateSpec, Trainer

import flow2onnx as flow
from tests.imported.test_free_axes import attending

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "runtime" / "js"
MLP = ROOT / "runtime" / "conformance" / "mlp"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

pytestmark = [
    pytest.mark.skipif(not shutil.which("npm"), reason="Node.js is not installed"),
    pytest.mark.skipif(
        not (PACKAGE / "node_modules" / "onnxruntime-node").is_dir(),
        reason="run `npm ci --ignore-scripts` in runtime/js first",
    ),
]
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM or os.environ.get("CHROMIUM")),
    reason="Chromium is not installed, and CHROMIUM does not name one",
)


def run(*command, timeout=600):
    """The output of a program that runs in the package's folder."""
    paths = [str(ROOT), str(ROOT / "runtime" / "python"), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(paths))
    if CHROMIUM:
        environment.setdefault("CHROMIUM", CHROMIUM)
    done = subprocess.run(
        command, cwd=PACKAGE, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def node(script, *arguments):
    """The output of an ES module."""
    return run("node", "--input-type=module", "--eval", script, *map(str, arguments))


def passed(out):
    """The counts at the end of a report of node's test runner."""
    counts = {name: int(count) for name, count in re.findall(r"^\S (tests|pass) (\d+)$", out, re.M)}
    assert counts["pass"] == counts["tests"] > 0, out
    return counts["pass"]


def test_in_node():
    assert passed(run("npm", "test", "--silent")) > 40


def test_types():
    run("npm", "run", "--silent", "check")


@pytest.mark.slow
@needs_chromium
def test_in_chromium():
    assert passed(run("npm", "run", "--silent", "test:browser", timeout=1800)) > 10


def test_what_is_published_is_small_and_typed():
    (packed,) = json.loads(run("npm", "pack", "--dry-run", "--json", "--silent"))
    names = {entry["path"] for entry in packed["files"]}
    assert {"src/index.js", "types/index.d.ts", "README.md", "package.json"} <= names
    assert not [name for name in names if name.startswith("test")]
    assert packed["size"] < 60_000


TRAIN = """
import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-node";
import { Options, Trainer, fromSafetensors } from "./src/index.js";
const [bundle, feeds, saved, state] = process.argv.slice(1);
const options = new Options({ threads: 1 });
const trainer = await Trainer.open(bundle, { ort, options });
await trainer.load(saved);
const { images, labels } = fromSafetensors(new Uint8Array(await readFile(feeds))).tensors;
for (let i = 0; i < 5; i++) {
  await trainer.step([images.data.slice(0, 160), labels.data.slice(0, 8)]);
}
await trainer.freeze("hidden-*");
await trainer.save(state);
console.log(trainer.steps);
"""


def test_a_state_goes_from_python_to_javascript_and_back(tmp_path):
    trainer = Trainer(MLP / "bundle", Options(intra_op_threads=1))
    images, labels = np.zeros((8, 20), np.float32), np.zeros(8, np.int32)
    trainer.step(images, labels)
    saved, state = tmp_path / "python.safetensors", tmp_path / "javascript.safetensors"
    trainer.save(saved)
    out = node(TRAIN, MLP / "bundle", MLP / "feeds.safetensors", saved, state)
    assert int(out) == 6
    trainer.load(state)
    assert trainer.steps == 6
    trainer.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == state.read_bytes()


IDENTITY = """
import { readFile } from "node:fs/promises";
import { Manifest } from "./src/index.js";
const manifest = await Manifest.parse(new Uint8Array(await readFile(process.argv[1])));
console.log(await manifest.stateId());
"""


def test_both_identify_a_state_alike(tmp_path):
    odd = ["b", "a\U0001f600", "a\ufffd", "ä", 'q"\\/\n\x7f\x01', "B", "__proto__"]
    state = tuple(StateSpec(name, (i, 2), "float32") for i, name in enumerate(odd))
    entry = FileEntry(0, "0")
    files = {"init.onnx": entry, "step.onnx": entry}
    manifest = Manifest("jöb", "a test", 21, files, (*state, StateSpec("n", (), "int64")), (), ())
    manifest.write(tmp_path)
    assert node(IDENTITY, tmp_path / "manifest.json").strip() == manifest.state_id


LENGTHS = """
import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-node";
import { NDArray, Options, Trainer } from "./src/index.js";
const [bundle, feeds] = process.argv.slice(1);
const trainer = await Trainer.open(bundle, { ort, options: new Options({ threads: 1 }) });
const whole = (rows) =>
  new NDArray("int64", [rows.length, rows[0].length], BigInt64Array.from(rows.flat(), BigInt));
const losses = [];
for (const { words, labels } of JSON.parse(await readFile(feeds, "utf-8"))) {
  const { loss } = await trainer.step([whole(words), whole(labels)]);
  losses.push(loss.data[0]);
}
let told = "";
try {
  await trainer.step([whole([[1, 2]]), whole([[1, 2, 3]])]);
} catch (error) {
  told = error.constructor.name;
}
console.log(JSON.stringify([losses, told]));
"""


def test_batches_of_several_lengths(tmp_path):
    made = flow.make_trainable(attending(), "cross_entropy(axis=-1)", "sgd(momentum=0.9)", lr=0.05)
    made.save(tmp_path / "bundle", verify=False)
    trainer = Trainer(tmp_path / "bundle", Options(intra_op_threads=1))
    draws, feeds, wanted = np.random.default_rng(0), [], []
    for batch, length in ((2, 5), (3, 9), (1, 1), (2, 12)):
        words, labels = draws.integers(0, 5, (2, batch, length))
        feeds.append({"words": words.tolist(), "labels": labels.tolist()})
        wanted.append(float(trainer.step(words, labels)["loss"]))
    (tmp_path / "feeds.json").write_text(json.dumps(feeds))
    losses, told = json.loads(node(LENGTHS, tmp_path / "bundle", tmp_path / "feeds.json"))
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert told == "FeedError"
