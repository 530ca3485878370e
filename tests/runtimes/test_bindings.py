"""Every binding honours the contract: one set of tests for all languages.

A test that is a feature of the contract's table names it; `python -m tests.runtimes.contract_table`
writes the table from these names and from what `languages` says of each language.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flow2onnx_runtime import load_safetensors, save_safetensors

from runtime.bindings import release as archives
from runtime.bindings.c_api import read
from tests.runtimes.c_driver import (
    BUNDLE,
    BUNDLES,
    CONFORMANCE,
    FEED,
    FILE,
    MARKS,
    MLP,
    NON_FINITE,
    OPTIONS,
    ROOT,
    RUNTIME,
    STATE,
    STOPPED,
    Command,
    Driver,
    damages,
    kill_during_saves,
    rewrite,
    same,
    set_at,
    words_of,
)
from tests.runtimes.contract_table import feature, is_stale
from tests.runtimes.languages import LANGUAGES, Language, c
from tests.runtimes.readme import run_page
from tests.runtimes.test_c_damage import FILES, WRONG

# run by `make runtimes SLOW=1`, a step of CI: compilers take longer than most modules of tests
pytestmark = [*MARKS, pytest.mark.slow]


# ---- What is built once --------------------------------------------------------------------------


QUICK = ("C", "C++")  # those whose compilers take seconds
BUILT = [
    pytest.param(x, id=x.name, marks=[] if x.name in QUICK else pytest.mark.slow) for x in LANGUAGES
]


@pytest.fixture(scope="session", params=BUILT)
def language(request) -> Language:
    found: Language = request.param
    if found.not_run or found.missing:
        pytest.skip(found.not_run or found.missing)
    return found


@pytest.fixture
def command(language, commands) -> Command:
    return commands(language)


@pytest.fixture
def driver(command) -> Iterator[Driver]:
    found = Driver(command)
    yield found
    found.close()


def wanted(language: Language, name: str) -> None:
    """Skip what a language lacks, with the reason that the table gives."""
    if name in language.lacks:
        pytest.skip(f"{language.name}: {language.lacks[name]}")


# ---- The traces ----------------------------------------------------------------------------------


def numbers(answer: str) -> list[str | float]:
    """The words of an answer, numbers as float32: each language writes these in its own way."""
    found: list[str | float] = []
    for word in answer.split():
        try:
            found.append(float(np.float32(word)))
        except ValueError:
            found.append(word)
    return found


ONE_IS_QUICK = [b if b == "mlp" else pytest.param(b, marks=pytest.mark.slow) for b in BUNDLES]


@feature("the recorded traces, bit for bit those of C")
@pytest.mark.parametrize("name", ONE_IS_QUICK)
def test_traces(driver, commands, name, tmp_path):
    model = Driver(commands(c.LANGUAGE))
    states = []
    for number, one in enumerate((driver, model)):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        states.append(scratch / "state.safetensors")
        one.ok("open", CONFORMANCE / name / "bundle")
        one.ok("predictor", CONFORMANCE / name / "bundle")
        one.ok("feeds", CONFORMANCE / name / "feeds.safetensors")
    for action in json.loads((CONFORMANCE / name / "trace.json").read_text())["actions"]:
        answers = [numbers(one.say(*words_of(action, state)))
                   for one, state in zip((driver, model), states, strict=True)]  # fmt: skip
        assert answers[0][0] == "ok"
        assert answers[0] == answers[1], action
    for one, state in zip((driver, model), states, strict=True):
        one.ok("save", state)
    assert driver.ok("steps")[:1] == model.ok("steps")[:1]
    assert states[0].read_bytes() == states[1].read_bytes()
    model.close()


@feature("resumes from a saved state bit for bit")
def test_a_saved_state_is_that_of_python(driver, tmp_path):
    driver.ok("open", MLP / "bundle")
    driver.ok("load", MLP / "state.safetensors")
    driver.ok("save", tmp_path / "s.safetensors")
    assert (tmp_path / "s.safetensors").read_bytes() == (MLP / "state.safetensors").read_bytes()


@feature("the trained model, exported for any ONNX Runtime")
def test_an_exported_model_is_that_of_c(driver, commands, tmp_path):
    model = Driver(commands(c.LANGUAGE))
    for one, name in ((driver, "a"), (model, "b")):
        one.ok("open", MLP / "bundle")
        one.ok("load", MLP / "state.safetensors")
        one.ok("export", tmp_path / name)
    model.close()
    files = sorted(os.listdir(tmp_path / "b"))
    assert sorted(os.listdir(tmp_path / "a")) == files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@feature("tensors of every element type")
def test_tensors_of_every_dtype(driver, tmp_path):
    rng = np.random.default_rng(0)
    kinds = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    kinds += ["bool", "float16", "float32", "float64"]
    arrays = {k: rng.integers(0, 2, (3, 1, 5)).astype(k) for k in kinds}
    arrays |= {"scalar": np.array(2.5, np.float32), "empty": np.zeros((0, 7), np.int64)}
    arrays |= {'odd "name"\n\x01é😀\\': np.arange(3.0), "bits": np.arange(6, dtype=np.uint16)}
    save_safetensors(tmp_path / "a.safetensors", arrays, elements={"bits": "bfloat16"})
    driver.ok("copy", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    before = (tmp_path / "a.safetensors").read_bytes()
    assert (tmp_path / "b.safetensors").read_bytes() == before


@feature("state read, written and replaced by name")
def test_state_by_name(driver, tmp_path):
    driver.ok("open", MLP / "bundle")
    state, path = driver.state(tmp_path), tmp_path / "v.safetensors"
    bias = state["hidden-bias"]
    for values in ({"x": bias}, {"hidden-bias": bias[:-1]}, {"hidden-bias": bias.view(np.int32)}):
        save_safetensors(path, values)
        driver.refused(STATE, "put", path)
    save_safetensors(path, {n: v for n, v in state.items() if n != "hidden-bias"})
    driver.refused(STATE, "replace", path)
    assert same(driver.state(tmp_path), state)
    save_safetensors(path, {"hidden-bias": bias + 1})
    driver.ok("put", path)
    changed = state | {"hidden-bias": bias + 1}
    assert same(driver.state(tmp_path), changed)
    save_safetensors(path, state)
    driver.ok("replace", path)
    assert same(driver.state(tmp_path), state)


# ---- What is refused -----------------------------------------------------------------------------


@feature("what is refused, with its kind and a hint")
def test_requests_without_sense(driver, tmp_path):
    said = driver.refused(BUNDLE, "open", tmp_path / "missing")
    assert str(tmp_path / "missing") in said
    driver.ok("open", MLP / "bundle")
    before = driver.state(tmp_path)
    for rate in (-1, "nan", "inf", 3.5e38):
        message, hint = driver.refused(STATE, "rate", rate).split("|")
        assert "learning rate" in message
        assert hint == "  give a number of at least 0, or use the schedule"
    for words in ("update", "freeze nothing", "freeze hidden-weight-momentum"):
        driver.refused(STATE, words)
    driver.refused(FEED, "step", 0)  # without feeds
    driver.refused(FILE, "save", tmp_path)
    driver.refused(BUNDLE, "load", tmp_path / "missing")
    assert same(driver.state(tmp_path), before)
    driver.ok("threads", -1)
    driver.refused(OPTIONS, "open", MLP / "bundle")
    driver.ok("threads", 1)
    driver.ok("ort", 1)
    driver.refused(BUNDLE, "open", MLP / "bundle")


def test_feeds_that_do_not_fit(driver, tmp_path):
    driver.ok("open", MLP / "bundle")
    images, labels = np.zeros((1, 8, 20), np.float32), np.zeros((1, 8), np.int32)
    for feeds in (
        {"images": images},
        {"images": images[:, :7], "labels": labels},
        {"images": images.astype(np.float64), "labels": labels},
        {"images": images, "labels": labels[..., None]},
    ):
        save_safetensors(tmp_path / "f.safetensors", feeds)
        driver.ok("feeds", tmp_path / "f.safetensors")
        driver.refused(FEED, "step", 0)
    driver.ok("predictor", MLP / "bundle")
    for given in ({"labels": labels[0]}, {"images": images}, {"images": images[0], "x": labels}):
        save_safetensors(tmp_path / "f.safetensors", given)
        driver.refused(FEED, "run", tmp_path / "f.safetensors")
    assert driver.ok("steps")[0] == "0"


@feature("losses that are not finite, refused on request")
def test_losses_that_are_not_finite(driver, tmp_path):
    driver.ok("finite", 1)
    driver.ok("open", MLP / "bundle")
    feeds, _ = load_safetensors(MLP / "feeds.safetensors")
    feeds["images"][1] = np.nan
    save_safetensors(tmp_path / "f.safetensors", feeds)
    driver.ok("feeds", tmp_path / "f.safetensors")
    driver.ok("step", 0)
    before = driver.state(tmp_path)
    assert "batch 2: the loss" in driver.refused(NON_FINITE, "step", 1)
    assert same(driver.state(tmp_path), before)
    driver.ok("step", 2)


@feature("runs stopped from outside, the state as it was")
def test_stopped_runs(driver, tmp_path):
    driver.ok("open", MLP / "bundle")
    driver.ok("predictor", MLP / "bundle")
    driver.ok("feeds", MLP / "feeds.safetensors")
    before = driver.state(tmp_path)
    driver.ok("stop", 1)
    for words in ("step 0", "evaluate 0", "accumulate 0", "predict 0"):
        driver.refused(STOPPED, words)
    driver.ok("stop", 0)
    assert same(driver.state(tmp_path), before)
    driver.ok("step", 0)


@feature("ONNX Runtime found at run time, or missed in words")
def test_onnxruntime_is_found_or_missed(driver, tmp_path):
    (tmp_path / "empty").touch()
    for wrong in (tmp_path / "none.so", tmp_path / "empty"):
        driver.ok("library", wrong)
        said = driver.refused(RUNTIME, "open", MLP / "bundle")
        assert wrong.name in said
        assert "FLOW2ONNX_ORT_LIBRARY" in said


# ---- Damage and sudden death ---------------------------------------------------------------------


@feature("the damage corpus, each file refused as what it is")
@pytest.mark.parametrize("flips", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_damaged_files(driver, flips, tmp_path):
    cuts, copy = max(1, flips // 4), tmp_path / "b"
    shutil.copytree(MLP / "bundle", copy)
    for name in FILES:
        content = (copy / name).read_bytes()
        for what, damaged in damages(content, flips, cuts):
            (copy / name).write_bytes(damaged)
            assert name in driver.refused(BUNDLE, "open", copy), what
        (copy / name).write_bytes(content)
    driver.ok("open", copy)
    path = tmp_path / "state.safetensors"
    driver.ok("save", path)
    before = driver.state(tmp_path)
    for what, damaged in damages(path.read_bytes(), 3 * flips, 3 * cuts):
        path.write_bytes(damaged)
        assert str(path) in driver.refused(BUNDLE, "load", path), what
    assert same(driver.state(tmp_path), before)


@pytest.mark.slow
def test_manifests_that_are_wrong_with_a_right_digest(driver, tmp_path):
    for number, (place, value) in enumerate(WRONG):
        copy = tmp_path / str(number)
        shutil.copytree(MLP / "bundle", copy)
        rewrite(copy, set_at(place, value))
        driver.refused(BUNDLE, "open", copy)
        shutil.rmtree(copy)


@feature("killed during saves: a whole state, and the same end")
@pytest.mark.parametrize(
    ("kills", "last"), [(2, 40), pytest.param(50, 400, marks=pytest.mark.slow)]
)
def test_killed_during_saves(command, kills, last, tmp_path):
    kill_during_saves(command, kills, last, tmp_path)


# ---- What a language has of its own --------------------------------------------------------------

CHECKED = "the language's own checker or the sanitizers, clean"
README = "a page whose code is run, installed from the release archive"


@feature(CHECKED)
@pytest.mark.slow
def test_the_languages_own_checker(language, release, tmp_path):
    wanted(language, CHECKED)
    assert language.check is not None
    language.check(release, tmp_path)


@feature(README)
@pytest.mark.slow
def test_the_page_is_run(language, archive, tmp_path):
    wanted(language, README)
    printed = run_page(ROOT / language.readme, archive, tmp_path)
    losses = [float(x) for x in re.findall(r"loss ([0-9.]+)", printed)]
    assert len(losses) > 1
    assert losses[-1] < losses[0]
    assert (tmp_path / "state.safetensors").is_file()


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_each_function_of_c_is_used(language):
    """A function that the header gains is missing in a binding until that offers it."""
    paths = [path for pattern in language.sources for path in ROOT.glob(pattern)]
    text = "\n".join(path.read_text("utf-8") for path in paths)
    used = set(re.findall(r"\bf2o_\w+", text))
    missing = {f.name for f in read().functions} - used - set(language.unused)
    assert not missing
    assert not used & set(language.unused), "what is used needs no reason to be unused"


# ---- The archive and the table -------------------------------------------------------------------


def test_equal_sources_make_an_equal_archive(archive, release, tmp_path):
    archives.write(tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == archive.read_bytes()
    found = {p.relative_to(release).as_posix() for p in release.rglob("*") if p.is_file()}
    assert {"LICENSE", "CONTRACT.md", "c/flow2onnx_runtime.c", "c/flow2onnx_runtime.h"} <= found
    assert "INTERNAL" in (release / "c" / "flow2onnx_runtime.c").read_text()


def test_the_contracts_table_is_that_of_the_tests():
    assert not is_stale(), "run: python -m tests.runtimes.contract_table"


def test_versions_agree(release):
    """Each package has the version of the archive."""
    found: dict[str, Any] = {}
    for path in release.rglob("*"):
        if path.name in ("vcpkg.json", "package.json"):
            found[path.name] = json.loads(path.read_text())["version"]
        if path.name == "Cargo.toml":
            found[path.name] = re.search(r'^version = "(.*)"$', path.read_text(), re.M)[1]
        if path.suffix == ".csproj":
            found[path.name] = re.search(r"<Version>(.*)</Version>", path.read_text())[1]
    assert found
    assert set(found.values()) == {archives.VERSION}, found
