"""The C runtime and whatever is broken: files, requests, processes, memory."""

import json
import os
import random
import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow2onnx_runtime import (
    BundleError,
    Options,
    Trainer,
    load_safetensors,
    save_safetensors,
)
from flow2onnx_runtime.manifest import Manifest

from tests.runtimes.c_driver import (
    BUNDLE,
    MARKS,
    MLP,
    SOURCE,
    Command,
    Driver,
    damages,
    kill_during_saves,
    make,
    rewrite,
    same,
    set_at,
)
from tests.runtimes.outside import OUTSIDE, fill, model_with

# run by `make runtimes SLOW=1`, a step of CI: compilers take longer than most modules of tests
pytestmark = [*MARKS, pytest.mark.slow]


# ---- External data -------------------------------------------------------------------------------


@pytest.mark.parametrize("in_branch", [False, True])
def test_no_file_outside_a_models_folder_is_read(watched, in_branch, tmp_path):
    path = fill(tmp_path) / "m.onnx"
    for location in ("a.bin", "sub/a.bin", "./a.bin"):
        path.write_bytes(model_with(location, in_branch=in_branch))
        watched.ok("predictor", path)
    for location in OUTSIDE:
        path.write_bytes(model_with(location.format(tmp_path), in_branch=in_branch))
        assert "inside its folder" in watched.refused(BUNDLE, "predictor", path), location
    path.write_bytes(model_with("../secret.bin", producer="ORTM"))  # the mark of another format
    assert path.read_bytes()[4:8] == b"ORTM"
    assert "inside its folder" in watched.refused(BUNDLE, "predictor", path)
    path.write_bytes(model_with("a.bin")[:-3])
    assert "no ONNX model" in watched.refused(BUNDLE, "predictor", path)


# ---- Savers that race ----------------------------------------------------------------------------


@pytest.mark.parametrize("each", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_savers_of_one_path_all_succeed(built, each, tmp_path):
    path = tmp_path / "s.safetensors"
    requests = "\n".join([f"open {MLP / 'bundle'}", *[f"save {path}"] * each, ""])
    command = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    savers = [subprocess.Popen([built / "driver"], **command) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda saver: saver.communicate(requests)[0], savers))
    said = [line for answer in answers for line in answer.splitlines()]
    assert len(said) == 3 * (each + 1)
    assert not [line for line in said if line.startswith("error")]
    assert os.listdir(tmp_path) == ["s.safetensors"]
    Trainer(MLP / "bundle").load(path)


# ---- Damage --------------------------------------------------------------------------------------

FILES = sorted(p.name for p in (MLP / "bundle").iterdir() if p.suffix not in (".md", ".config"))
FLIPS, CUTS = 50, 12


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_of_a_bundle(watched, name, tmp_path):
    copy = tmp_path / "b"
    shutil.copytree(MLP / "bundle", copy)
    content = (copy / name).read_bytes()
    for what, damaged in damages(content, FLIPS, CUTS):
        (copy / name).write_bytes(damaged)
        assert name in watched.refused(BUNDLE, "open", copy), what
    (copy / name).write_bytes(content)
    watched.ok("open", copy)


def test_damaged_states(watched, tmp_path):
    path = tmp_path / "state.safetensors"
    watched.ok("open", MLP / "bundle")
    watched.ok("save", path)
    content, before = path.read_bytes(), watched.state(tmp_path)
    for what, damaged in damages(content, 3 * FLIPS, 3 * CUTS):
        path.write_bytes(damaged)
        assert str(path) in watched.refused(BUNDLE, "load", path), what
    assert same(watched.state(tmp_path), before)
    assert watched.ok("steps")[0] == "0"


def test_there_are_500_cases():
    assert len(FILES) * (FLIPS + CUTS) + 3 * (FLIPS + CUTS) >= 500


WRONG = [
    *((f, ...) for f in ("format", "version", "job", "producer", "opset", "files", "state", "feeds",
                         "results", "losses", "init", "step", "predict")),
    *((f"state/0/{f}", ...) for f in ("name", "shape", "dtype", "role", "trainable")),
    *((f"predict/0/{f}", ...) for f in ("job", "file", "feeds", "results", "reads", "holds")),
    *((f, value) for f in ("job", "opset", "files", "state", "losses", "step", "predict")
      for value in (None, 1.5, [7], {"a": 1}, "")),
    ("format", "other"), ("version", 1), ("version", 3), ("version", 0), ("version", True),
    ("version", 2.0), ("opset", 0), ("opset", 2**53), ("init", "none.onnx"), ("step", "init.onnx"),
    ("weights", "predict.onnx"), ("weights", "none"), ("learning_rate", "hidden-bias"),
    ("learning_rate", "none"), ("accumulate/count", "System-Train-Rate-train_job"),
    ("accumulate/count", ...), ("accumulate", 3), ("accumulate/update", "none"),
    ("metadata", []), ("metadata/x", 1), ("losses/0", "none"), ("losses/0", 3),
    ("state/0/name", "hidden-bias"), ("state/0/name", "other"), ("state/0/shape/0", 17),
    ("state/0/shape/0", -1), ("state/0/shape/0", 2**63), ("state/0/shape/0", 2**53),
    ("state/0/shape/0", "n"), ("state/0/shape", [320]), ("state/0/dtype", "float16"),
    ("state/0/dtype", "complex64"), ("state/0/role", "weight"), ("state/0/role", "counter"),
    ("state/4/shape", [2]), ("state/0/trainable", 1), ("state/6/of", "none"),
    ("state/6/of", "hidden-bias-momentum"), ("state/6/of", 3), ("state/0", 3),
    ("feeds/0/name", "other"), ("feeds/0/shape/0", 9), ("feeds/0/shape/0", "n"),
    ("feeds/0/dtype", "float64"), ("feeds/1", ...), ("results/0/name", "out/1"),
    ("results/0/shape/0", "n"), ("feeds/0/shape", "8"), ("feeds/0/shape/0", True),
    ("files/step.onnx", ...), ("files/step.onnx/size", 1), ("files/step.onnx/size", "9"),
    ("files/step.onnx/sha256", "0" * 64), ("files/step.onnx/sha256", 5),
    ("files/..", {"size": 1, "sha256": "0"}), ("files/a", {"size": 1, "sha256": "0"}),
    ("files/manifest.json", {"size": 1, "sha256": "0"}), ("files/C:x", {"size": 1, "sha256": "0"}),
    ("predict/0/file", "none"), ("predict/0/reads", ["none"]), ("predict/0/holds", ["none"]),
    ("predict/0/holds", [1]),
]  # fmt: skip


def test_manifests_that_are_wrong_with_a_right_digest(watched, tmp_path):
    for number, (place, value) in enumerate(WRONG):
        copy = tmp_path / str(number)
        shutil.copytree(MLP / "bundle", copy)
        rewrite(copy, set_at(place, value))
        with pytest.raises(BundleError):
            Trainer(copy, Options(intra_op_threads=1))
        watched.refused(BUNDLE, "open", copy)
        shutil.rmtree(copy)


def test_manifests_that_are_right_in_other_words(watched, tmp_path):
    def change(manifest: Any) -> None:
        manifest["later"] = {"a": [1.5e3, -0.0, None, True, "\u0007\u00e9\U0001f600"]}
        manifest["state"][0]["later"] = []
        manifest["metadata"] = None
        manifest["producer"] = "é"

    shutil.copytree(MLP / "bundle", tmp_path / "b")
    rewrite(tmp_path / "b", change)
    watched.ok("open", tmp_path / "b")
    watched.ok("load", MLP / "state.safetensors")


def test_state_id_of_names_beyond_ascii(watched, tmp_path):
    """Job names with every kind of character that JSON writes in its own way."""
    shutil.copytree(MLP / "bundle", tmp_path / "b")
    rewrite(tmp_path / "b", set_at("job", 'a"\\/\b\f\n\r\t\x01\x7f\x80é\uffff\U0001f600'))
    watched.ok("open", tmp_path / "b")
    watched.ok("save", tmp_path / "s.safetensors")
    trainer = Trainer(tmp_path / "b")
    trainer.load(tmp_path / "s.safetensors")
    trainer.save(tmp_path / "p.safetensors")
    assert (tmp_path / "p.safetensors").read_bytes() == (tmp_path / "s.safetensors").read_bytes()


def test_states_that_are_wrong_with_a_right_digest(watched, tmp_path):
    watched.ok("open", MLP / "bundle")
    path = tmp_path / "s.safetensors"
    values, metadata = load_safetensors(MLP / "state.safetensors")
    manifest = Manifest.read(MLP / "bundle")

    def written(values: dict[str, Any], **changes: str | None) -> Path:
        kept = {k: v for k, v in (metadata | changes).items() if v is not None}
        save_safetensors(path, values, kept, signs=True)
        return path

    counter = manifest.counter
    assert counter is not None
    watched.ok("load", written(values))
    before = watched.state(tmp_path)
    for key in ("format", "version", "job", "state_id", "steps"):
        for value in (None, "", "x", metadata[key] + "0"):
            watched.refused(BUNDLE, "load", written(values, **{key: value}))
    for steps in ("-1", "67.0", "٦٧", "1" * 20, " 67"):
        watched.refused(BUNDLE, "load", written(values, steps=steps))
    watched.refused(BUNDLE, "load", written(values | {counter: values[counter] + 1}))
    watched.refused(BUNDLE, "load", written(values | {"surplus": values[counter]}))
    watched.refused(BUNDLE, "load", written({n: v for n, v in values.items() if n != counter}))
    flat = values["hidden-weight"]
    watched.refused(BUNDLE, "load", written(values | {"hidden-weight": flat.reshape(-1)}))
    watched.refused(BUNDLE, "load", written(values | {"hidden-weight": flat.astype(np.float64)}))
    save_safetensors(path, values, {k: v for k, v in metadata.items() if k != "digest"})
    watched.refused(BUNDLE, "load", path)
    assert same(watched.state(tmp_path), before)


# ---- Fuzzing: the same verdict as Python's --------------------------------------------------

GOOD = {
    "__metadata__": {"a": "b", "c": "é"},
    "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "flag": {"dtype": "BOOL", "shape": [2], "data_offsets": [24, 26]},
    "none": {"dtype": "I64", "shape": [0, 5], "data_offsets": [26, 26]},
}
BODY = np.arange(6, dtype=np.float32).tobytes() + b"\x01\x00"
PIECES = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"-", b"0", b"1e5", b"1.0", b"-0", b"null",
    b"true", b"NaN", b"Infinity", b"\x00", b"\x1f", b"\x7f", b"\x80", b"\xc0\x80", b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80", b"\xf0\x9f\x98\x80", b"\\u00e9", b"\\ud83d\\ude00", b"\\u12", b"\\x",
    b"99999999999999999999", b"9223372036854775807", b"18446744073709551616", b"[" * 200, b" ",
    b'"w":', b'"dtype":"F64"', b"/", b"\\/", b"\xef\xbb\xbf", b"2", b"26", b"24", b"01",
]  # fmt: skip


def mutated(rng: random.Random) -> bytes:
    """A file of which the header's text, its length or the body were changed a little."""
    text = bytearray(json.dumps(GOOD, ensure_ascii=rng.random() < 0.5).encode())
    for _ in range(rng.randint(0, 3)):
        place = rng.randrange(len(text) + 1)
        end = place + rng.choice([0, 0, 1, 1, 2, 5])
        text[place:end] = rng.choice(PIECES) if rng.random() < 0.8 else rng.randbytes(1)
    body = bytearray(BODY)
    if rng.random() < 0.1:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.1:
        body = body[: rng.randrange(len(body))]
    length = (
        len(text) if rng.random() < 0.9 else rng.choice([0, 1, len(text) + 9, 2**40, 2**64 - 1])
    )
    return struct.pack("<Q", length) + bytes(text) + bytes(body)


def structured(rng: random.Random) -> bytes:
    """A file whose header is sound JSON, and says something else than it should."""
    header: dict[str, Any] = json.loads(json.dumps(GOOD))
    sizes = [0, 1, -1, 2, 24, 26, 2**31, 2**63 - 1, 2**63, 2**64]
    lists = [[], [2], [0, 24], [1, 6], [2**32, 2**32], [2**63 - 1, 0], [1] * 65]
    values = [*sizes, *lists, 1.0, True, None, "F32", "BF16", "", {}]
    for _ in range(rng.randint(1, 2)):
        entry = header[rng.choice(list(header))]
        if not isinstance(entry, dict) or not entry:
            continue
        key = rng.choice(list(entry))
        if isinstance(entry[key], list) and entry[key] and rng.random() < 0.6:
            entry[key][rng.randrange(len(entry[key]))] = deepcopy(rng.choice(values))
        else:
            entry[key] = deepcopy(rng.choice(values))
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + BODY


def verdict(path: Path) -> dict[str, Any] | None:
    """The tensors as Python reads them, or None."""
    try:
        return load_safetensors(path)[0]
    except BundleError:
        return None


# Python can name a tensor with a zero or half a character in it; in C there are no such names.
def is_beyond_c(content: bytes) -> bool:
    return b"\\u0000" in content or b"\\ud" in content.lower()


@pytest.mark.parametrize("generate", [mutated, structured])
def test_fuzz(watched, generate, tmp_path):
    taken = 0
    for seed in range(1500):
        content = generate(random.Random(seed))
        path, copy = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
        path.write_bytes(content)
        wanted, answer = verdict(path), watched.say("copy", path, copy)
        if wanted is None or is_beyond_c(content):
            assert answer.startswith("error 1 ") or wanted is not None, f"seed {seed}: {answer}"
        else:
            assert answer == "ok", f"seed {seed}: {answer}"
            assert same(load_safetensors(copy)[0], wanted), f"seed {seed}"
            taken += 1
    assert 20 < taken < 1480, "some are right, most are wrong"


def test_deep_and_wide_json(watched, tmp_path):
    path = tmp_path / "a.safetensors"
    for text in (b'{"a":' * 100_000, b'{"a":' + b"[" * 1_000_000, b'{"a":[' + b"0," * 9_000_000):
        path.write_bytes(struct.pack("<Q", len(text)) + text)
        watched.refused(BUNDLE, "tensors", path)


def test_many_tensors(driver, tmp_path):
    """Reading takes no time that grows with the square of their number."""
    arrays = {f"t{i}": np.array([i], np.int32) for i in range(50_000)}
    save_safetensors(tmp_path / "a.safetensors", arrays)
    driver.ok("copy", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()


# ---- Sudden death --------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_during_saves(built, tmp_path):
    kill_during_saves(Command((built / "driver",)), 50, 400, tmp_path)


# ---- Memory --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_memory(sanitized, tmp_path):
    """Each allocation fails once: an error each time, nothing leaks, nothing is used wrongly."""
    make(sanitized, "starve", sanitize=True)
    command = [sanitized / "starve", MLP / "bundle", MLP / "feeds.safetensors", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    allocations, refused = (int(w) for w in done.stdout.split() if w.isdigit())
    assert allocations > 200
    assert refused > 0.9 * allocations


def test_threads_share_a_predictor(sanitized):
    make(sanitized, "threads", sanitize=True)
    command = [sanitized / "threads", MLP / "bundle", MLP / "feeds.safetensors"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1600 calls, 0 wrong\n"), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("valgrind"), reason="there is no valgrind")
def test_valgrind(built, tmp_path, monkeypatch):
    # a thread of ONNX Runtime's own, which reads what exit() has freed on a busy machine
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    suppressed = f"--suppressions={SOURCE / 'tests' / 'valgrind.supp'}"
    kinds = "--errors-for-leak-kinds=definite,indirect,possible"
    shown = "--show-leak-kinds=definite,indirect,possible"
    found = Driver(built, "valgrind", "-q", suppressed, "--leak-check=full", kinds, shown,
                   "--error-exitcode=9")  # fmt: skip
    found.ok("open", MLP / "bundle")
    found.ok("predictor", MLP / "bundle")
    found.ok("feeds", MLP / "feeds.safetensors")
    for words in ("step 0", "evaluate 1", "predict 2", "accumulate 0", "update", "predict 0"):
        found.ok(words)
    found.ok("save", tmp_path / "s.safetensors")
    found.ok("load", tmp_path / "s.safetensors")
    found.ok("export", tmp_path / "out")
    found.ok("predictor", tmp_path / "out" / "predict.onnx")
    content = (tmp_path / "s.safetensors").read_bytes()
    for _, damaged in damages(content, 10, 4):
        (tmp_path / "d.safetensors").write_bytes(damaged)
        found.refused(BUNDLE, "load", tmp_path / "d.safetensors")
    found.close()
