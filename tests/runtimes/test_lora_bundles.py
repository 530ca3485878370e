"""Bundles of adapters in other languages: the losses of Python, and files that serve."""

import json
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from flow2onnx_runtime import Options, Trainer, save_safetensors
from flow2onnx_runtime.adapters import Adapter, read_adapter, write_adapter

import flow2onnx as flow
from examples.lora_page.__main__ import HERE, LIBRARIES
from examples.lora_page.__main__ import texts as page_texts
from flow2onnx.imported import adapter_of, write_slots
from flow2onnx.imported.low_rank.texts import batches_of, read_texts
from flow2onnx.imported.low_rank.tokens import open_tokenizer
from tests.imported.lora.folders import TINY, Folder, with_bits, write_folder
from tests.imported.lora.sessions import active, batch, cross_entropy, feeds, open_folder
from tests.imported.lora.words import chat, write_tokenizer
from tests.runtimes.c_driver import BUNDLE, FILE, MARKS, MLP, STATE, Driver
from tests.runtimes.languages import LANGUAGES
from tests.runtimes.test_js import PACKAGE, node
from tests.runtimes.test_js import pytestmark as js_marks

STEPS = 6
PAGE = HERE / "page"
WORDS = ("where", "is", "it", "the", "key", "under", "third", "stone", "a", "b")


@dataclass(frozen=True)
class Trained:
    """A bundle of adapters, and what Python made of it in some steps."""

    folder: Folder
    bundle: Path
    feeds: Path
    batch: dict[str, np.ndarray]
    losses: list[float]
    adapter: Path


def train(path, shape, **options):
    """A folder of a model, its bundle, and Python's steps."""
    folder = write_folder(path / "model", shape)
    made = flow.lora(folder.path, rank=4, lr=1e-2, accumulate=False, **options)
    made.save(path / "bundle")
    given = batch(shape)
    save_safetensors(path / "feeds.safetensors", given)
    trainer = Trainer(path / "bundle", Options(intra_op_threads=1))
    losses = [float(trainer.step(**given)["loss"]) for _ in range(STEPS)]
    write_adapter(path / "python.onnx_adapter", adapter_of(trainer))
    return Trained(
        folder, path / "bundle", path / "feeds.safetensors", given, losses,
        path / "python.onnx_adapter",
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny model in 4 bits whose head is its table of words."""
    shape = with_bits(replace(TINY, layers=1, is_tied=True), 4)
    return train(tmp_path_factory.mktemp("lora"), shape, webgpu=True)


def check_adapter(trained, path):
    """The file holds what Python wrote."""
    found, wanted = read_adapter(path), read_adapter(trained.adapter)
    assert set(found.pairs) == set(wanted.pairs)
    for module, pair in wanted.pairs.items():
        for a, b in zip(found.pairs[module], pair, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5, err_msg=module)


def served_loss(trained, path, tmp_path):
    """The loss of the served model, which the runtime feeds the adapter of the file."""
    write_slots(trained.folder.path, tmp_path / "served")
    options, held = active(path)
    session = open_folder(tmp_path / "served" / "model.onnx")
    logits = session.run(["logits"], feeds(trained.folder, trained.batch["input_ids"]), options)[0]
    del held
    return cross_entropy(logits, trained.batch["labels"])


def test_no_float64_is_left(trained):
    step = onnx.load(trained.bundle / "step.onnx", load_external_data=False).graph
    types = {t.data_type for t in step.initializer}
    types |= {a.t.data_type for n in step.node for a in n.attribute if a.HasField("t")}
    types |= {a.i for n in step.node if n.op_type == "Cast" for a in n.attribute}
    assert onnx.TensorProto.FLOAT in types
    assert onnx.TensorProto.DOUBLE not in types


def test_the_present_adapter_answers_as_it_is_served(trained):
    trainer = Trainer(trained.bundle)
    entry = next(e for e in trainer.manifest.predict if e.job == "answer")
    given = feeds(trained.folder, trained.batch["input_ids"])
    assert {f.name for f in entry.feeds} == set(given)
    for _ in range(2):
        whole = trainer.predict(**given, job="answer")
        loss = float(trainer.evaluate(**trained.batch)["loss"])
        assert abs(cross_entropy(whole["logits"], trained.batch["labels"]) - loss) < 1e-5 * loss
        trainer.step(**trained.batch)
    whole = trainer.predict(**given, job="answer")
    first = {n: v[:, :-1] if v.ndim == 2 else v for n, v in given.items()}
    begun = trainer.predict(**first, job="answer")
    past = {n.replace("present", "past_key_values"): v for n, v in begun.items() if n != "logits"}
    last = {"input_ids": given["input_ids"][:, -1:], "attention_mask": given["attention_mask"]}
    found = trainer.predict(**last, **past, job="answer")["logits"][:, 0]
    np.testing.assert_allclose(found, whole["logits"][:, -1], atol=1e-4)


TRAIN = """
import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-node";
import { NDArray, Options, Trainer, fromSafetensors } from "./src/index.js";
const [bundle, feeds, adapter, python, steps] = process.argv.slice(1);
const options = new Options({ threads: 1 });
let read;
const onProgress = (progress) => (read = progress);
const trainer = await Trainer.open(bundle, { ort, options, onProgress });
const batch = fromSafetensors(new Uint8Array(await readFile(feeds))).tensors;
const losses = [];
for (let i = 0; i < Number(steps); i++) losses.push((await trainer.step(batch)).loss.data[0]);
await trainer.exportAdapter({ file: adapter });
const trained = (await trainer.evaluate(batch)).loss.data[0];
const evaluated = (await trainer.predict(batch)).loss.data[0];
const { feeds: asked } = trainer.manifest.predict.find(({ job }) => job === "answer");
const given = {};
for (const { name, shape } of asked) {
  const size = [2, shape[1], 0, shape[3]];
  given[name] = batch[name] ?? new NDArray("float32", size, new Float32Array(0));
}
const { logits } = await trainer.predict(given, { job: "answer" });
const maps = await readFile("/proc/self/maps", "utf-8").catch(() => "");
const other = await Trainer.open(bundle, { ort, options });
await other.loadAdapter(python);
const loaded = (await other.evaluate(batch)).loss.data[0];
console.log(JSON.stringify({ losses, trained, evaluated, loaded, read, shape: logits.shape,
  maps: maps.split("\\n").filter((line) => line.endsWith("model.onnx.data")).length }));
"""


class TestNode:
    pytestmark = js_marks

    def test_losses_and_the_adapter_are_those_of_python(self, trained, tmp_path):
        path = tmp_path / "node.onnx_adapter"
        out = node(TRAIN, trained.bundle, trained.feeds, path, trained.adapter, STEPS)
        found = json.loads(out)
        np.testing.assert_allclose(found["losses"], trained.losses, rtol=1e-6)
        check_adapter(trained, path)
        served = served_loss(trained, path, tmp_path)
        for name in ("trained", "evaluated", "loaded"):
            np.testing.assert_allclose(found[name], served, rtol=1e-5)
        assert found["shape"] == [*trained.batch["input_ids"].shape, trained.folder.shape.words]
        assert found["read"]["loaded"] == found["read"]["total"] > 0
        if sys.platform == "linux":
            assert found["maps"] > 0, "the frozen weights are mapped, not copied"

    def test_frozen_weights_of_another_content_are_refused(self, trained, tmp_path):
        told = {}
        for what in ("cut", "changed", "missing", "linked"):
            bundle = tmp_path / what
            shutil.copytree(trained.bundle, bundle)
            data = bundle / "model.onnx.data"
            content = bytearray(data.read_bytes())
            if what in ("cut", "changed"):
                content[-1] ^= 1
                data.write_bytes(content[:-9] if what == "cut" else content)
            else:
                data.unlink()
            if what == "linked":
                os.symlink(trained.bundle / data.name, data)
            told[what] = node(OPEN, bundle)
        for what, words in told.items():
            assert words.startswith("BundleError: "), words
            assert "model.onnx.data" in words, what
        assert "the manifest says" in told["changed"]
        assert "link to another folder" in told["linked"]


OPEN = """
import * as ort from "onnxruntime-node";
import { Trainer } from "./src/index.js";
await Trainer.open(process.argv[1], { ort }).then(
  () => console.log("opened"), (error) => console.log(`${error.name}: ${error.message}`));
"""


def put_feeds(trained, path):
    """A file of the batch as the drivers take it: as the first of several."""
    save_safetensors(path, {n: a[None] for n, a in trained.batch.items()})
    return path


def check_driver(driver, trained, tmp_path):
    """Train as Python did, write the adapter, go on from Python's; the bytes of the file."""
    path = tmp_path / "own.onnx_adapter"
    driver.ok("feeds", put_feeds(trained, tmp_path / "feeds.safetensors"))
    driver.ok("open", trained.bundle)
    losses = [float(driver.ok("step", 0)[1]) for _ in range(STEPS)]
    np.testing.assert_allclose(losses, trained.losses, rtol=1e-6)
    driver.ok("adapter", path)
    check_adapter(trained, path)
    loss = driver.ok("evaluate", 0)
    driver.ok("open", trained.bundle)
    driver.ok("from", path)
    assert driver.ok("evaluate", 0) == loss
    driver.ok("from", trained.adapter)
    np.testing.assert_allclose(float(driver.ok("evaluate", 0)[1]), float(loss[1]), rtol=1e-4)
    return path


class TestC:
    pytestmark = MARKS

    def test_losses_and_the_adapter_are_those_of_python(self, trained, driver, tmp_path):
        path = check_driver(driver, trained, tmp_path)
        served = served_loss(trained, path, tmp_path)
        np.testing.assert_allclose(float(driver.ok("evaluate", 0)[1]), served, rtol=1e-4)

    def test_what_is_no_adapter_is_refused(self, trained, driver, tmp_path):
        path = tmp_path / "bad.onnx_adapter"
        driver.ok("feeds", put_feeds(trained, tmp_path / "feeds.safetensors"))
        driver.ok("open", trained.bundle)
        before = driver.ok("evaluate", 0)
        whole = trained.adapter.read_bytes()
        for content in (b"", b"TORT", whole[:200], whole[:4] + b"NONE" + whole[8:]):
            path.write_bytes(content)
            assert "is no adapter" in driver.refused(BUNDLE, "from", path)
        pairs = read_adapter(trained.adapter).pairs
        fewer = dict(list(pairs.items())[1:])
        wider = {m: (np.pad(a, ((0, 0), (0, 1))), np.pad(b, ((0, 1), (0, 0))))
                 for m, (a, b) in pairs.items()}  # fmt: skip
        for other, words in ((fewer, "of other modules"), (wider, "the bundle trains")):
            write_adapter(path, Adapter(pairs=other, scales={}))
            assert words in driver.refused(STATE, "from", path)
        driver.refused(BUNDLE, "from", tmp_path / "none.onnx_adapter")
        driver.refused(FILE, "adapter", tmp_path / "none" / "x.onnx_adapter")
        assert driver.ok("evaluate", 0) == before, "a refusal changes nothing"
        driver.ok("open", MLP / "bundle")
        assert "trains no adapter" in driver.refused(STATE, "adapter", path)

    @pytest.mark.slow
    def test_damaged_adapters_are_refused_or_read(self, trained, watched, tmp_path):
        rng = np.random.default_rng(0)
        path = tmp_path / "bad.onnx_adapter"
        watched.ok("open", trained.bundle)
        watched.ok("adapter", path)
        refused = 0
        for source in (path.read_bytes(), trained.adapter.read_bytes()):
            for i in range(500):
                content = bytearray(source[: rng.integers(len(source))] if i % 5 == 0 else source)
                for at in rng.integers(0, max(1, min(len(content), 2000)), 1 + i % 4):
                    content[at : at + 1] = bytes([rng.integers(256)])
                path.write_bytes(content)
                answer = watched.say("from", path)
                assert answer == "ok" or answer.startswith((f"error {BUNDLE}", f"error {STATE}"))
                refused += answer != "ok"
        assert refused > 200


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_every_binding_writes_the_adapter_of_c(language, trained, commands, tmp_path):
    if language.not_run or language.missing:
        pytest.skip(language.not_run or language.missing)
    found = []
    for name, command in (("c", commands(LANGUAGES[0])), ("own", commands(language))):
        driver = Driver(command)
        (tmp_path / name).mkdir()
        found.append(check_driver(driver, trained, tmp_path / name).read_bytes())
        driver.close()
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.skipif(js_marks[0].args[0] or js_marks[1].args[0], reason="Node.js is not ready")
def test_adapters_of_half_precision_fit_a_model_of_half_precision(tmp_path):
    made = train(tmp_path, replace(TINY, dtype="float16"), recompute=True)
    path = tmp_path / "node.onnx_adapter"
    *losses, trained = json.loads(node(TRAIN_HALF, made.bundle, made.feeds, path, STEPS))
    np.testing.assert_allclose(losses, made.losses, rtol=1e-6)
    pairs = read_adapter(path).pairs
    assert {a.dtype for pair in pairs.values() for a in pair} == {np.dtype(np.float16)}
    assert abs(served_loss(made, path, tmp_path) - trained) < 0.02 * trained


TRAIN_HALF = """
import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-node";
import { Options, Trainer, fromSafetensors } from "./src/index.js";
const [bundle, feeds, adapter, steps] = process.argv.slice(1);
const trainer = await Trainer.open(bundle, { ort, options: new Options({ threads: 1 }) });
const batch = fromSafetensors(new Uint8Array(await readFile(feeds))).tensors;
const losses = [];
for (let i = 0; i < Number(steps); i++) losses.push((await trainer.step(batch)).loss.data[0]);
await trainer.loadAdapter(await trainer.exportAdapter({ file: adapter }));
losses.push((await trainer.evaluate(batch)).loss.data[0]);
console.log(JSON.stringify(losses));
"""


ROWS = """
import { readFile } from "node:fs/promises";
const [site, lines] = process.argv.slice(1);
const { Texts } = await import(`${site}/texts.js`);
const texts = new Texts(JSON.parse(await readFile(`${site}/texts.json`, "utf-8")));
const rows = texts.rows(await readFile(lines, "utf-8"), 24);
const shown = rows.map(({ feeds }) =>
  Object.fromEntries(Object.entries(feeds).map(([n, { data }]) => [n, Array.from(data, Number)])));
console.log(JSON.stringify({ shown, question: texts.question("where is it"), ends: texts.ends }));
"""


@pytest.mark.slow
@pytest.mark.skipif(js_marks[0].args[0] or js_marks[1].args[0], reason="Node.js is not ready")
def test_the_page_makes_the_tokens_of_python(tmp_path):
    pytest.importorskip("tokenizers", reason="needs pip install '.[lora]'")
    pytest.importorskip("jinja2", reason="needs pip install '.[lora]'")
    folder = write_folder(tmp_path / "model", replace(TINY, layers=1))
    write_tokenizer(folder.path, WORDS)
    site = tmp_path / "site"
    shutil.copytree(PAGE, site)
    (site / "lib").mkdir()
    for name, path in LIBRARIES.items():
        shutil.copyfile(PACKAGE / "node_modules" / path, site / "lib" / name)
    (site / "package.json").write_text('{"type": "module"}')
    (site / "texts.json").write_text(json.dumps(page_texts(folder.path)))
    lines = tmp_path / "lines.jsonl"
    lines.write_text(
        chat("where is it", "under the stone")
        + chat("a", "b", "where is the key", "the key is under the third stone a b a b a b a b")
        + json.dumps({"prompt": "where is it ", "completion": "under a"})
        + "\n\n"
        + json.dumps({"text": "the third stone"})
    )
    tokenizer = open_tokenizer(folder.path)
    found = json.loads(node(ROWS, site, lines))
    texts = [t.cut(24) for t in read_texts(lines, tokenizer)]
    for row, text in zip(found["shown"], texts, strict=True):
        (wanted,) = batches_of([text], size=1, length=24)
        assert row == {n: a[0].tolist() for n, a in wanted.items()}
    asked = tokenizer.render([{"role": "user", "content": "where is it"}], asks=True)
    assert found["question"] == tokenizer.encode(asked)[0]
    assert found["ends"] == [tokenizer.token("eos_token")]
