"""Damaged bundles, the same for the same seed, opened by the runtimes in Python, JavaScript and C.

Usage: python -m tests.reliability.damaged_bundles [--count 500] [--seed 0] [--language python …]

Each must be refused as a defect of the bundle: `BundleError`, in C `F2O_BUNDLE_ERROR`.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from flow2onnx_runtime import BundleError, FileEntry, FlowError, Manifest

from tests.hostile.models import FAMILIES, case
from tests.reliability.bundles import copy_bundle, open_trainer
from tests.runtimes import c_driver, test_js
from tests.runtimes.outside import model_with
from tests.runtimes.test_c_damage import WRONG

LANGUAGES = ("python", "javascript", "c")
EXPANDING = [n for n, name in enumerate(FAMILIES) if name.startswith("functions_without")]
_EQUAL = ("version", 2.0)  # which is 2 to JavaScript
Random = random.Random


def _file(folder: Path, draws: Random) -> Path:
    """Any file that the manifest lists, or itself."""
    return folder / draws.choice([*sorted(Manifest.read(folder, verify=False).files),
                                  "manifest.json"])  # fmt: skip


def flip_bit(folder: Path, draws: Random) -> None:
    """Turn a bit of a file."""
    path = _file(folder, draws)
    content = bytearray(path.read_bytes())
    content[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
    path.write_bytes(content)


def cut_off(folder: Path, draws: Random) -> None:
    """Let a file end early."""
    path = _file(folder, draws)
    os.truncate(path, draws.randrange(path.stat().st_size))


def extend(folder: Path, draws: Random) -> None:
    """Append bytes to a file."""
    path = _file(folder, draws)
    path.write_bytes(path.read_bytes() + draws.randbytes(draws.randint(1, 100)))


def swap(folder: Path, draws: Random) -> None:
    """Give a file the content of another."""
    one, two = draws.sample(sorted(Manifest.read(folder, verify=False).files), 2)
    shutil.copy(folder / one, folder / two)


def remove(folder: Path, draws: Random) -> None:
    """Remove a file, or put something there that is none."""
    path = _file(folder, draws)
    path.unlink()
    kind = draws.choice(["gone", "pipe", "folder", "device", "circle"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "gone":
        path.symlink_to("/dev/zero" if kind == "device" else path.name)


def contradict(folder: Path, draws: Random) -> None:
    """Write a wrong field into the manifest, with the digest that it deserves."""
    place, value = draws.choice([row for row in WRONG if row != _EQUAL])
    c_driver.rewrite(folder, c_driver.set_at(place, value))


def expand(folder: Path, draws: Random) -> None:
    """Write a step model that expands without end, with the hash that it deserves."""
    _replace(folder, case(draws.choice(EXPANDING), draws.randrange(1 << 30))[1])


def leave_folder(folder: Path, draws: Random) -> None:
    """Write a step model with values outside of the folder, with the hash that it deserves."""
    place = draws.choice(["../w.bin", "/etc/passwd", "/dev/zero", "a/../../w.bin", "missing.bin"])
    _replace(folder, model_with(place))


def _replace(folder: Path, content: bytes) -> None:
    path = folder / "step.onnx"
    path.write_bytes(content)
    entry = FileEntry.of(path)
    kept = {"size": entry.size, "sha256": entry.sha256}
    c_driver.rewrite(folder, c_driver.set_at("files/step.onnx", kept))


DAMAGES: tuple[Callable[[Path, Random], None], ...] = (
    flip_bit, cut_off, extend, swap, remove, contradict, expand, leave_folder,
)  # fmt: skip


def damage(folder: Path, number: int, seed: int) -> Path:
    """A copy of the bundle with the damage of a number; the kinds take turns."""
    draws = Random(f"{seed}/{number}")
    kind = DAMAGES[number % len(DAMAGES)]
    copy = copy_bundle(folder / f"{number:04}-{kind.__name__}")
    kind(copy, draws)
    return copy


def in_python(folders: Iterable[Path]) -> list[str]:
    """The outcome for each folder: "refused", or what else happened."""
    found = []
    for folder in folders:
        try:
            open_trainer(folder)
            found.append("opened")
        except BundleError:
            found.append("refused")
        except FlowError as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


SCRIPT = """
import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-node";
import { BundleError, Options, Trainer } from "./src/index.js";
const found = [];
for (const folder of JSON.parse(readFileSync(process.argv[1], "utf8"))) {
  const outcome = await Trainer.open(folder, { ort, options: new Options({ threads: 1 }) }).then(
    () => "opened",
    (error) => (error instanceof BundleError ? "refused" : String(error)),
  );
  found.push(outcome);
}
console.log(JSON.stringify(found));
"""


def in_javascript(folders: Iterable[Path]) -> list[str]:
    """The outcome for each folder in Node."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([str(folder) for folder in folders], file)
        file.flush()
        return list(json.loads(test_js.node(SCRIPT, file.name)))


def in_c(folders: Iterable[Path]) -> list[str]:
    """The outcome for each folder in C, in one process."""
    with tempfile.TemporaryDirectory() as place:
        built = c_driver.make(Path(place), "driver")
        lines = "".join(f"open {folder}\n" for folder in folders)
        done = subprocess.run([built / "driver"], input=lines, capture_output=True, text=True)
    answers = done.stdout.splitlines()
    wanted = f"error {c_driver.BUNDLE} "
    return ["refused" if answer.startswith(wanted) else answer for answer in answers]


OPENERS = {"python": in_python, "javascript": in_javascript, "c": in_c}


def measure(count: int, seed: int, languages: Iterable[str] = LANGUAGES) -> dict[str, Counter[str]]:
    """How often each outcome was, by language."""
    with tempfile.TemporaryDirectory() as place:
        folders = [damage(Path(place), number, seed) for number in range(count)]
        found = {}
        for language in languages:
            outcomes = OPENERS[language](folders)
            assert len(outcomes) == count, f"{language} ended after {len(outcomes)} bundles"
            found[language] = Counter(
                outcome if outcome == "refused" else f"{folder.name}: {outcome}"
                for folder, outcome in zip(folders, outcomes, strict=True)
            )
        return found


def main() -> int:
    """Open them all; 1 if one was not refused as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--language", choices=LANGUAGES, action="append")
    asked = parser.parse_args()
    found = measure(asked.count, asked.seed, asked.language or LANGUAGES)
    print(json.dumps({"seed": asked.seed, **found}, indent=1))
    return any(outcomes["refused"] != asked.count for outcomes in found.values())


if __name__ == "__main__":
    sys.exit(main())
