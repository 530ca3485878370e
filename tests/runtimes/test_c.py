"""The C runtime: building it, the recorded traces, exchange with Python, what it refuses."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flow2onnx_runtime import (
    Options,
    Predictor,
    Trainer,
    load_safetensors,
    save_safetensors,
)

import flow2onnx as flow
from models import mlp
from tests.imported.test_free_axes import attending
from tests.runtimes.c_driver import (
    BUNDLE,
    BUNDLES,
    COMPILERS,
    CONFORMANCE,
    FEED,
    FILE,
    MARKS,
    MLP,
    NON_FINITE,
    OPTIONS,
    ROOT,
    RUNTIME,
    SOURCE,
    STATE,
    STOPPED,
    WARNINGS,
    Driver,
    make,
    near,
    results_of,
    rewrite,
    same,
    words_of,
)

pytestmark = MARKS
SLOW = pytest.mark.slow

PARTS = sorted((SOURCE / "src").glob("*.c"))


# ---- Building ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compiler", [pytest.param(name, marks=[SLOW] * (i > 0)) for i, name in enumerate(COMPILERS)]
)
@pytest.mark.parametrize(
    "level", [pytest.param(level, marks=SLOW) for level in ("-O0", "-O2", "-Os")]
)
def test_no_warnings(compiler, level, tmp_path):
    single = make(tmp_path, "flow2onnx_runtime.c") / "flow2onnx_runtime.c"
    flags = ["-std=c11", level, *WARNINGS, f"-I{SOURCE}", "-c", single, *PARTS]
    done = subprocess.run([compiler, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_functions_are_short():
    """No function has more than 60 lines."""
    for part in PARTS:
        start = 0
        for number, line in enumerate(part.read_text().splitlines()):
            start = start if line[:1] in (" ", "#", "}", "") else number
            assert line != "}" or number - start < 60, f"{part.name}:{start + 1}"


def test_header_alone(tmp_path):
    (tmp_path / "x.c").write_text('#include "flow2onnx_runtime.h"\nint nothing;\n')
    for compiler, standard in (("gcc", "-std=c11"), ("g++", "-std=c++17")):
        if shutil.which(compiler):
            language = ["-x", "c++"] if compiler == "g++" else []
            flags = [standard, "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}", *language, "-c"]
            command = [compiler, *flags, tmp_path / "x.c", "-o", tmp_path / "x.o"]
            assert subprocess.run(command).returncode == 0


def sdk_header() -> str | None:
    places = [os.environ.get("ORT_INCLUDE", ""), "/usr/include/onnxruntime", "/usr/local/include"]
    return next((p for p in places if p and (Path(p) / "onnxruntime_c_api.h").is_file()), None)


@pytest.mark.skipif(
    not sdk_header(), reason="no onnxruntime_c_api.h: set ORT_INCLUDE to its folder"
)
def test_view_is_that_of_the_sdk(tmp_path):
    text = (make(tmp_path, "flow2onnx_runtime.c") / "flow2onnx_runtime.c").read_text()
    moved = text.replace("X(133, RunWithBinding", "X(132, RunWithBinding")
    retyped = text.replace("X(17, DisableMemPattern, OrtStatus *,", "X(17, DisableMemPattern, int,")
    for wanted, source in ((0, text), (1, moved), (1, retyped)):
        (tmp_path / "x.c").write_text(source)
        flags = ["-std=c11", "-DFLOW2ONNX_WITH_ORT_HEADER", "-isystem", sdk_header(), f"-I{SOURCE}"]
        command = ["cc", *flags, "-c", tmp_path / "x.c", "-o", tmp_path / "x.o"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert bool(done.returncode) == bool(wanted), done.stderr
        assert ("lies elsewhere" in done.stderr or "has another type" in done.stderr) == bool(
            wanted
        )


def test_nothing_is_global(built):
    """The runtime keeps no data that can change, and shows no name but its own."""
    command = ["size", "-A", built / "flow2onnx_runtime.o"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    sections = [line.split() for line in lines if line.startswith((".data", ".bss", ".tbss"))]
    fixed = ".data.rel.ro"  # constants whose addresses the loader fills in
    assert all(size == "0" for name, size, _ in sections if not name.startswith(fixed)), sections
    done = subprocess.run(["nm", built / "flow2onnx_runtime.o"], capture_output=True, text=True)
    kinds = [line.split()[-2:] for line in done.stdout.splitlines()]
    assert all(name.startswith("f2o_") for kind, name in kinds if kind == "T")


# ---- The recorded traces ------------------------------------------------------------------------


@pytest.mark.parametrize("optimization", [0, 3])
@pytest.mark.parametrize("name", BUNDLES)
def test_trace(driver, name, optimization, tmp_path):
    trace = json.loads((CONFORMANCE / name / "trace.json").read_text())
    driver.ok("optimize", optimization)
    driver.ok("open", CONFORMANCE / name / "bundle")
    driver.ok("predictor", CONFORMANCE / name / "bundle")
    driver.ok("feeds", CONFORMANCE / name / "feeds.safetensors")
    for number, action in enumerate(trace["actions"]):
        wanted = action.get("results", {})
        words = driver.ok(*words_of(action, tmp_path / "s.safetensors"))
        found = results_of(words, set(wanted))
        assert found.keys() == wanted.keys()
        for result, values in wanted.items():
            near(found[result], values, trace["tolerance"], f"action {number}: {action['do']}")
    final, metadata = load_safetensors(CONFORMANCE / name / "state.safetensors")
    assert driver.ok("steps")[0] == metadata["steps"]
    found = driver.state(tmp_path)
    assert found.keys() == final.keys()
    for key, values in final.items():
        near(found[key], values, trace["tolerance"], key)


# ---- States and models, exchanged with Python ----------------------------------------------------


@pytest.mark.parametrize("name", BUNDLES)
def test_saves_the_bytes_that_python_saves(driver, name, tmp_path):
    driver.ok("open", CONFORMANCE / name / "bundle")
    driver.ok("load", CONFORMANCE / name / "state.safetensors")
    driver.ok("save", tmp_path / "s.safetensors")
    wanted = (CONFORMANCE / name / "state.safetensors").read_bytes()
    assert (tmp_path / "s.safetensors").read_bytes() == wanted


def test_python_goes_on_from_a_state_of_c(driver, tmp_path):
    driver.ok("open", MLP / "bundle")
    driver.ok("feeds", MLP / "feeds.safetensors")
    for i in range(3):
        driver.ok("step", i)
    driver.ok("save", tmp_path / "s.safetensors")
    trainer = Trainer(MLP / "bundle", Options(intra_op_threads=1))
    trainer.load(tmp_path / "s.safetensors")
    assert trainer.steps == 3
    assert same(trainer.state_dict(), driver.state(tmp_path))


@pytest.mark.parametrize("name", BUNDLES)
def test_exported_model_predicts_like_the_trainer(driver, name, tmp_path):
    driver.ok("open", CONFORMANCE / name / "bundle")
    driver.ok("load", CONFORMANCE / name / "state.safetensors")
    for _ in range(2):  # into a missing folder, then over an earlier export
        driver.ok("export", tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["out"]
    trainer = Trainer(CONFORMANCE / name / "bundle", Options(intra_op_threads=1))
    trainer.load(CONFORMANCE / name / "state.safetensors")
    trainer.export_predict(tmp_path / "python")
    for file in os.listdir(tmp_path / "python"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "python" / file).read_bytes()
    feeds, _ = load_safetensors(CONFORMANCE / name / "feeds.safetensors")
    given = {f.name: feeds[f.name][0] for f in trainer.manifest.predict[0].feeds}
    save_safetensors(tmp_path / "given.safetensors", given)
    driver.ok("predictor", tmp_path / "out" / "predict.onnx")
    found = driver.ok("run", tmp_path / "given.safetensors")
    wanted = next(iter(Predictor(tmp_path / "out" / "predict.onnx")(**given).values()))
    near([float(x) for x in found[1:]], wanted.ravel()[:16], 1e-5, name)


def test_first_state_from_init(driver, tmp_path):
    """Without weights, init.onnx is run."""
    shutil.copytree(MLP / "bundle", tmp_path / "b")
    rewrite(tmp_path / "b", lambda m: m.update(weights=None))
    driver.ok("open", tmp_path / "b")
    wanted = Trainer(tmp_path / "b").state_dict()
    assert same(driver.state(tmp_path), wanted)


def test_resumes_bit_for_bit(driver, tmp_path):
    driver.ok("open", MLP / "bundle")
    driver.ok("feeds", MLP / "feeds.safetensors")
    for i in range(8):
        driver.ok("step", i % 4)
        if i == 3:
            driver.ok("save", tmp_path / "s.safetensors")
    wanted = driver.state(tmp_path)
    driver.ok("open", MLP / "bundle")
    driver.ok("load", tmp_path / "s.safetensors")
    for i in range(4, 8):
        driver.ok("step", i % 4)
    assert same(driver.state(tmp_path), wanted)


def test_evaluate_and_frozen_keep_the_values(driver, tmp_path):
    driver.ok("open", MLP / "bundle")
    driver.ok("feeds", MLP / "feeds.safetensors")
    first = driver.state(tmp_path)
    driver.ok("evaluate", 0)
    assert same(driver.state(tmp_path), first)
    driver.ok("freeze", "hidden-weight")
    driver.ok("step", 0)
    after = driver.state(tmp_path)
    kept = {n for n, v in first.items() if after[n].tobytes() == v.tobytes()}
    assert {"hidden-weight", "hidden-weight-momentum"} <= kept
    assert not {"hidden-bias", "output-weight", "output-weight-momentum"} & kept


def test_tensors_of_every_dtype_go_through(watched, tmp_path):
    rng = np.random.default_rng(0)
    kinds = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    kinds += ["bool", "float16", "float32", "float64"]
    arrays = {k: rng.integers(0, 2, (3, 1, 5)).astype(k) for k in kinds}
    arrays |= {"scalar": np.array(2.5, np.float32), "empty": np.zeros((0, 7), np.int64)}
    arrays |= {'odd "name"\n\x01é😀\\': np.arange(3.0), "bits": np.arange(6, dtype=np.uint16)}
    elements = {"bits": "bfloat16"}
    save_safetensors(tmp_path / "a.safetensors", arrays, elements=elements)
    watched.ok("copy", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    wanted = (tmp_path / "a.safetensors").read_bytes()
    assert (tmp_path / "b.safetensors").read_bytes() == wanted


# ---- What is refused -----------------------------------------------------------------------------


def test_requests_without_sense(watched, tmp_path):
    d = watched
    d.refused(BUNDLE, "open", tmp_path / "missing")
    d.ok("open", MLP / "bundle")
    before = d.state(tmp_path)
    for rate in (-1, "nan", "inf", 3.5e38):
        d.refused(STATE, "rate", rate)
    d.refused(STATE, "update")
    d.refused(STATE, "freeze", "nothing")
    d.refused(STATE, "freeze", "hidden-weight-momentum")
    d.refused(FEED, "step", 0)  # without feeds
    d.refused(FILE, "save", tmp_path / "no" / "such")
    d.refused(FILE, "save", tmp_path)
    d.refused(BUNDLE, "load", tmp_path / "missing")
    assert same(d.state(tmp_path), before)
    d.ok("feeds", MLP / "feeds.safetensors")
    d.ok("accumulate", 0)
    d.refused(STATE, "freeze", "hidden-weight")
    d.ok("optimize", 9)
    d.refused(OPTIONS, "open", MLP / "bundle")
    d.ok("optimize", 0)
    d.ok("threads", -1)
    d.refused(OPTIONS, "open", MLP / "bundle")
    d.ok("threads", 1)
    d.ok("ort", 1)
    d.refused(BUNDLE, "open", MLP / "bundle")
    d.ok("ort", 0)
    d.ok("open", CONFORMANCE / "lenet" / "bundle")
    d.ok("feeds", CONFORMANCE / "lenet" / "feeds.safetensors")
    d.refused(BUNDLE, "accumulate", 0)
    d.refused(BUNDLE, "load", MLP / "state.safetensors")


def test_feeds_that_do_not_fit(watched, tmp_path):
    watched.ok("open", MLP / "bundle")
    images, labels = np.zeros((1, 8, 20), np.float32), np.zeros((1, 8), np.int32)
    for feeds in (
        {"images": images},
        {"images": images[:, :7], "labels": labels},
        {"images": images.astype(np.float64), "labels": labels},
        {"images": images, "labels": labels[..., None]},
        {"images": images, "labels": labels.astype(np.int64)},
    ):
        save_safetensors(tmp_path / "f.safetensors", feeds)
        watched.ok("feeds", tmp_path / "f.safetensors")
        watched.refused(FEED, "step", 0)
    watched.ok("predictor", MLP / "bundle")
    for given in ({"labels": labels[0]}, {"images": images}, {"images": images[0], "x": labels}):
        save_safetensors(tmp_path / "f.safetensors", given)
        watched.refused(FEED, "run", tmp_path / "f.safetensors")
    assert watched.ok("steps")[0] == "0"


def test_values_that_do_not_fit_the_state(watched, tmp_path):
    watched.ok("open", MLP / "bundle")
    state = watched.state(tmp_path)
    path = tmp_path / "v.safetensors"
    bias = state["hidden-bias"]
    for values in ({"x": bias}, {"hidden-bias": bias[:-1]}, {"hidden-bias": bias.view(np.int32)}):
        save_safetensors(path, values)
        watched.refused(STATE, "put", path)
    save_safetensors(path, {n: v for n, v in state.items() if n != "hidden-bias"})
    watched.refused(STATE, "replace", path)
    assert same(watched.state(tmp_path), state)
    save_safetensors(path, {"hidden-bias": bias + 1})
    watched.ok("put", path)
    assert same(watched.state(tmp_path), state | {"hidden-bias": bias + 1})


def test_values_put_are_those_that_a_prediction_uses(watched, tmp_path):
    """The session of a predict model that holds the weights is opened anew."""
    watched.ok("open", MLP / "bundle")
    watched.ok("predictor", MLP / "bundle")
    watched.ok("feeds", MLP / "feeds.safetensors")
    first = watched.ok("predict", 0)
    assert watched.ok("predict", 0) == first
    save_safetensors(tmp_path / "v.safetensors", {"output-bias": np.arange(10, dtype=np.float32)})
    watched.ok("put", tmp_path / "v.safetensors")
    assert watched.ok("predict", 0) != first


def test_losses_that_are_not_finite(watched, tmp_path):
    watched.ok("finite", 1)
    watched.ok("open", MLP / "bundle")
    feeds, _ = load_safetensors(MLP / "feeds.safetensors")
    feeds["images"][1] = np.nan
    save_safetensors(tmp_path / "f.safetensors", feeds)
    watched.ok("feeds", tmp_path / "f.safetensors")
    watched.ok("step", 0)
    before = watched.state(tmp_path)
    assert "batch 2: the loss" in watched.refused(NON_FINITE, "step", 1)
    assert same(watched.state(tmp_path), before)
    watched.ok("step", 2)


def test_a_folder_with_other_files_is_not_overwritten(watched, tmp_path):
    watched.ok("open", MLP / "bundle")
    (tmp_path / "out").mkdir()
    watched.ok("export", tmp_path / "out")  # empty
    (tmp_path / "out" / "mine.txt").write_text("mine")
    watched.refused(BUNDLE, "export", tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
def test_a_pipe_is_not_waited_for(watched, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    watched.refused(BUNDLE, "tensors", tmp_path / "pipe")
    watched.refused(BUNDLE, "predictor", tmp_path / "pipe")
    shutil.copytree(MLP / "bundle", tmp_path / "b")
    (tmp_path / "b" / "manifest.json").unlink()
    os.mkfifo(tmp_path / "b" / "manifest.json")
    watched.refused(BUNDLE, "open", tmp_path / "b")


@pytest.mark.slow
def test_models_in_the_format_of_the_runtime(watched, tmp_path):
    jobs = runpy.run_path(mlp.__file__)  # of this test's session: others import jobs of this name
    jobs["train_job"].export(
        tmp_path / "b", predict=jobs["predict_job"], batch=4, on_device=True, ort_format=True
    )
    rng = np.random.default_rng(0)
    images, labels = rng.random((1, 4, 1, 28, 28)).astype(np.float32), np.arange(4, dtype=np.int32)
    save_safetensors(tmp_path / "f.safetensors", {"images": images, "labels": labels[None]})
    save_safetensors(tmp_path / "g.safetensors", {"images": images[0]})
    answers = []
    for ort in (0, 1):
        watched.ok("ort", ort)
        watched.ok("open", tmp_path / "b")
        watched.ok("predictor", tmp_path / "b")
        watched.ok("feeds", tmp_path / "f.safetensors")
        words = [*watched.ok("step", 0)[1:], *watched.ok("run", tmp_path / "g.safetensors")[1:]]
        answers.append([float(word) for word in words])
    near(answers[0], answers[1], 1e-5, "the same, by models in two formats")
    watched.refused(OPTIONS, "predict", 0)  # its weights cannot be replaced


def test_a_stopped_run_changes_nothing(watched, tmp_path):
    watched.ok("open", MLP / "bundle")
    watched.ok("feeds", MLP / "feeds.safetensors")
    watched.ok("predictor", MLP / "bundle")
    before = watched.state(tmp_path)
    watched.ok("stop", 1)
    for words in ("step 0", "evaluate 0", "accumulate 0", "predict 0"):
        assert "was stopped: the state is as it was" in watched.refused(STOPPED, words)
    assert same(watched.state(tmp_path), before)
    watched.ok("stop", 0)
    stepped = watched.ok("step", 0)
    watched.ok("open", MLP / "bundle")
    assert watched.ok("step", 0) == stepped


def test_the_library_is_loaded_or_linked(built, driver, tmp_path):
    """A shared library that is not linked to ONNX Runtime finds it where it is told, or says so."""
    driver.ok("library", "/none")
    assert "linked to its ONNX Runtime" in driver.refused(OPTIONS, "open", MLP / "bundle")
    make(tmp_path, "libflow2onnx_runtime.so")
    command = ["cc", "-std=c11", SOURCE / "tests" / "driver.c", "-o", tmp_path / "driver",
               f"-L{tmp_path}", "-lflow2onnx_runtime", f"-Wl,-rpath,{tmp_path}"]  # fmt: skip
    subprocess.run(command, check=True)
    (tmp_path / "empty").touch()
    loads = Driver(tmp_path)
    for wrong in (tmp_path / "none.so", tmp_path / "empty"):
        loads.ok("library", wrong)
        said = loads.refused(RUNTIME, "open", MLP / "bundle")
        assert "ONNX Runtime is not found" in said
        assert wrong.name in said
    loads.ok("library", (built / "libonnxruntime.so").resolve())
    loads.ok("open", MLP / "bundle")
    loads.ok("feeds", MLP / "feeds.safetensors")
    loads.ok("step", 0)
    loads.close()


# ---- The example ---------------------------------------------------------------------------------


def test_example(built, tmp_path):
    paths = [str(ROOT), str(ROOT / "runtime" / "python")]
    prepared = subprocess.run(
        [sys.executable, "-m", "examples.c.prepare", tmp_path], cwd=ROOT, capture_output=True,
        text=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(paths)),
    )  # fmt: skip
    assert prepared.returncode == 0, prepared.stderr
    done = subprocess.run([built / "digits", tmp_path, "6"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if "loss" in line]
    assert losses[-1] < losses[0] / 4
    (accuracy,) = [line for line in done.stdout.splitlines() if line.startswith("accuracy")]
    assert float(accuracy.split()[1]) > 95
    assert "it is taken for a" in done.stdout
    again = subprocess.run([built / "digits", tmp_path, "1"], capture_output=True, text=True)
    assert "going on after step" in again.stdout


def test_size(built, tmp_path):
    """A device does not notice it: the example, stripped, is under 110 KB."""
    subprocess.run(["strip", "-o", tmp_path / "digits", built / "digits"], check=True)
    assert (tmp_path / "digits").stat().st_size < 110_000


def test_batches_of_several_lengths(driver, tmp_path):
    made = flow.make_trainable(attending(), "cross_entropy(axis=-1)", "sgd(momentum=0.9)", lr=0.05)
    made.save(tmp_path / "bundle", verify=False)
    trainer = Trainer(tmp_path / "bundle")
    driver.ok("open", tmp_path / "bundle")
    draws = np.random.default_rng(0)
    for batch, length in ((2, 5), (3, 9), (1, 1), (2, 12)):
        words, labels = draws.integers(0, 5, (2, batch, length))
        save_safetensors(tmp_path / "f.safetensors", {"words": words[None], "labels": labels[None]})
        driver.ok("feeds", tmp_path / "f.safetensors")
        found = results_of(driver.ok("step", 0), {"loss"})
        near(found["loss"], trainer.step(words, labels)["loss"], 1e-5, f"{batch}, {length}")
