"""Numbers that a bundle's feeds may hold: one case for the runtimes in Python, JavaScript and C."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from flow2onnx_runtime import BundleError, Manifest, Options, Trainer, save_safetensors
from onnx import helper

import flow2onnx as flow
from tests.imported import models
from tests.runtimes import c_driver, test_js
from tests.runtimes.c_driver import rewrite, set_at

# ids, labels, and what is said of them; the first rows are right
CASES = [
    ([[0, 4], [-5, 3]], [0, 2], None),
    ([[0, 4], [1, 3]], [2, -100], None),
    ([[0, 4], [1, 3]], [0, 3], r"argument labels: the label 3 at [1] is none of the 3 classes, "
     "0 to 2 (or -100), in loss"),
    ([[0, 4], [1, 3]], [-1, 0], "argument labels: the label -1 at [0] is none of the 3 classes"),
    ([[0, 5], [1, 3]], [0, 1], "argument ids: the index 5 at [0, 1] is none of the 5 rows, "
     "-5 to 4"),
    ([[0, 4], [1, -6]], [0, 1], "argument ids: the index -6 at [1, 1] is none of the 5 rows"),
]  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A classifier of three classes over a table of five rows."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("ReduceMean", ["rows", "ones"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["y"]),
    ]
    tensors = [
        models.tensor("table", models.random(0, 5, 4)), models.tensor("ones", np.int64([1])),
        models.tensor("w", models.random(1, 4, 3)),
    ]  # fmt: skip
    model = models.model(
        nodes, [models.info("ids", [2, 2], models.I)], [models.info("y", [2, 3])], tensors
    )
    folder = tmp_path_factory.mktemp("ranges") / "bundle"
    flow.make_trainable(model, "cross_entropy", "sgd", lr=0.1).save(folder)
    return folder


def complaints(step, state):
    """The answer to each case, None where it was done; the state is kept by a refusal."""
    found = []
    for ids, labels, wanted in CASES:
        before = state()
        found.append(step(ids, labels))
        assert wanted is None or state() == before
    return found


def check(found):
    for (_, _, wanted), said in zip(CASES, found, strict=True):
        assert (wanted is None) == (said is None), said
        assert wanted is None or wanted in said, said


def test_the_manifest_says_it(bundle):
    feeds = {f["name"]: f for f in json.loads((bundle / "manifest.json").read_text())["feeds"]}
    assert feeds["labels"]["range"].items() >= {"least": 0, "below": 3, "ignored": -100}.items()
    assert feeds["ids"]["range"].items() >= {"least": -5, "below": 5}.items()
    assert Manifest.read(bundle).feeds[0].range.below == 5


def test_python(bundle):
    trainer = Trainer(bundle, Options(intra_op_threads=1))

    def step(ids, labels):
        try:
            trainer.step(ids=np.int64(ids), labels=np.int64(labels))
        except flow.errors.FlowError as error:
            return str(error)
        return None

    check(complaints(step, lambda: {n: v.tolist() for n, v in trainer.state_dict().items()}))
    for other in (trainer.evaluate, trainer.step_async):
        with pytest.raises(ValueError, match="the label 7 at"):
            other(ids=np.int64([[0, 1], [2, 3]]), labels=np.int64([7, 0]))
    with pytest.raises(ValueError, match=r"predict.onnx: argument ids: the index 9 at \[0, 0\]"):
        trainer.predict(np.int64([[9, 1], [2, 3]]))


@pytest.fixture(scope="module")
def driver(plain_build):
    found = c_driver.Driver(plain_build)
    yield found
    found.close()


needs_c = [pytest.mark.skipif(not shutil.which("make") or not shutil.which("cc"), reason="no cc")]


@pytest.mark.usefixtures("driver")
class TestC:
    pytestmark = needs_c

    def test_steps(self, bundle, driver, tmp_path):
        ids, labels = (np.int64([case[i] for case in CASES]) for i in (0, 1))
        save_safetensors(tmp_path / "feeds", {"ids": ids, "labels": labels})
        driver.ok("open", bundle)
        driver.ok("feeds", tmp_path / "feeds")
        found = []
        for number, (_, _, wanted) in enumerate(CASES):
            driver.ok("state", tmp_path / "before")
            answer = driver.say("step", number)
            found.append(None if answer.startswith("ok") else answer)
            driver.ok("state", tmp_path / "after")
            kept = (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
            assert kept is (wanted is not None)
        check(found)
        assert all(said is None or said.startswith("error 3 ") for said in found)

    def test_wrong_ranges(self, bundle, driver, tmp_path):
        for copy in damaged(bundle, tmp_path):
            driver.refused(c_driver.BUNDLE, "open", copy)


SCRIPT = """
import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-node";
import { FeedError, Options, Trainer } from "./src/index.js";
const [bundle, cases, ...damaged] = process.argv.slice(1);
const options = new Options({ threads: 1 });
const found = [];
const trainer = await Trainer.open(bundle, { ort, options });
const state = async () => String(new Uint8Array((await trainer.toBytes()).buffer));
const big = (rows) => BigInt64Array.from(rows.flat(), BigInt);
for (const [ids, labels, wanted] of JSON.parse(cases)) {
  const before = await state();
  const said = await trainer.step({ ids: big(ids), labels: big(labels) }).then(
    () => null,
    (error) => (error instanceof FeedError ? error.message : `no FeedError: ${error}`),
  );
  if (wanted !== null && before !== (await state())) throw new Error("the state was changed");
  found.push(said);
}
for (const folder of damaged) {
  const error = await Trainer.open(folder, { ort, options }).catch((e) => e);
  if (error.constructor.name !== "BundleError") throw new Error(`${folder} was opened: ${error}`);
}
console.log(JSON.stringify(found));
"""


class TestJavaScript:
    pytestmark = test_js.pytestmark

    def test_steps_and_wrong_ranges(self, bundle, tmp_path):
        copies = list(damaged(bundle, tmp_path))
        check(json.loads(test_js.node(SCRIPT, bundle, json.dumps(CASES), *copies)))


WRONG = [3, {}, {"least": 0}, {"least": 3, "below": 3}, {"least": 0, "below": 2.5},
         {"least": 0, "below": 2, "ignored": "x"}, {"least": 0, "below": 2, "layer": 3},
         ]  # fmt: skip


def damaged(bundle, folder):
    """Copies of a bundle whose ranges are wrong."""
    for number, value in enumerate(WRONG):
        copy = Path(shutil.copytree(bundle, folder / str(number)))
        rewrite(copy, set_at("feeds/0/range", value))
        yield copy


def test_wrong_ranges(bundle, tmp_path):
    for copy in damaged(bundle, tmp_path):
        with pytest.raises(BundleError, match=re.escape("feeds[0]")):
            Trainer(copy, Options(intra_op_threads=1))
