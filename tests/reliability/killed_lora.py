"""Kills and Ctrl-C at any moment of `flow2onnx lora`: it goes on to the same bits, nothing is lost.

Usage: python -m tests.reliability.killed_lora [--kills 30] [--signal KILL|INT] [--seed 0] [--twice]

Each training is a process of its own, killed in a part of it that is drawn: while it writes the
bundle, makes a step, writes a checkpoint, validates, samples, or writes the adapter. What is found
then is whole. It is begun again with --resume, perhaps killed again, and at its end the adapter,
the tables and the samples are those of a training that nobody disturbed, and no temporary file is
left. With --twice a second Ctrl-C follows the first, inside of what that waits for.
"""

import argparse
import csv
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from click.testing import CliRunner
from flow2onnx_runtime import load_safetensors
from flow2onnx_runtime.adapters import read_adapter
from flow2onnx_runtime.loop import Loop
from flow2onnx_runtime.token_log import StepLog

from flow2onnx.cli import lora_training
from flow2onnx.cli.app import app
from flow2onnx.cli.commands import lora
from flow2onnx.imported import TrainableAdapter
from flow2onnx.imported.low_rank.samples import Samples
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.words import chat, write_tokenizer

ANSWERS = {"who are you": "i am a model", "what is it": "it is a model", "are you": "yes i am"}
SETTINGS = (
    "--epochs", "2", "--every", "1", "--accumulate", "2", "--lr", "0.005", "--dropout", "0.1",
    "--validate-every", "2", "--sample", "are you", "--sample-every", "2", "--sample-tokens", "8",
    "--early-stopping", "5",
)  # fmt: skip
COLUMNS = ("step", "epoch", "loss", "tokens", "val_loss")  # which do not depend on the clock
_AGAIN = 0.3  # of the resumed trainings are killed, too


# --- the training that is killed ------------------------------------------------------------------


def _announce(owner: Any, name: str, what: str) -> None:
    """Let a function tell when it begins and ends."""
    inner = getattr(owner, name)

    def telling(*args: Any, **named: Any) -> Any:
        print(what, file=sys.stderr, flush=True)
        try:
            return inner(*args, **named)
        finally:
            print(f"/{what}", file=sys.stderr, flush=True)

    setattr(owner, name, telling)


def prepare(arguments: list[str]) -> None:
    """Let trainings of this process's children tell what they do, over one compiled model."""
    made = []

    def compiled(*args: Any, **named: Any) -> Any:
        if not made:
            made.append(trainable_adapter(*args, **named))
        return made[0]

    trainable_adapter, write, fit = lora.trainable_adapter, lora.write_bundle, lora.fit_bundle
    lora.trainable_adapter = compiled
    lora.write_bundle = lora.fit_bundle = lambda *_: None
    found = CliRunner().invoke(app, ["lora", *arguments])
    assert found.exit_code == 0, found.output
    lora.write_bundle, lora.fit_bundle = write, fit
    for owner, name, what in (
        (TrainableAdapter, "save", "bundle"),
        (Loop, "_one", "step"),
        (Loop, "save", "checkpoint"),
        (StepLog, "_validate", "validation"),
        (Samples, "_sample", "sample"),
        (lora_training, "_write", "adapter"),
    ):
        _announce(owner, name, f"@{what}")


class Training:
    """`flow2onnx lora` in a child of this process, and what it says on stderr."""

    def __init__(self, arguments: list[str]) -> None:
        self.status: int | None = None
        read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.dup2(write, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os._exit(_exit_code(lambda: app(["lora", *arguments])))
        os.close(write)
        self.stderr = os.fdopen(read)

    def wait(self) -> int:
        """The exit status, negative for a signal."""
        if self.status is None:
            _, found = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(found)
            self.stderr.close()
        return self.status

    def kill(self, number: int) -> None:
        """Send a signal; one that has ended is not told."""
        os.kill(self.pid, number)  # it is waited for only later, so the number is still its own


def _exit_code(act: Callable[[], object]) -> int:
    try:
        act()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


# --- killing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The folder of a model with its data, and the arguments that train it."""

    folder: Path

    def arguments(self, output: Path, *more: str) -> list[str]:
        data = str(self.folder / "chat.jsonl")
        return [str(self.folder), "--data", data, "-o", str(output), "--validation", data,
                *SETTINGS, *more]  # fmt: skip

    def begin(self, output: Path, *more: str) -> Training:
        return Training(self.arguments(output, *more))


def make_place(folder: Path) -> Place:
    """A tiny model of 4 bits with its words, and nine chats."""
    made = write_folder(folder, with_bits(TINY, 4))
    write_tokenizer(made.path, " ".join([*ANSWERS, *ANSWERS.values()]).split())
    (made.path / "chat.jsonl").write_text("".join(chat(*t) for t in ANSWERS.items()) * 3)
    place = Place(made.path)
    prepare(place.arguments(folder / "nowhere"))
    return place


@dataclass
class Parts:
    """The parts of an undisturbed training: how long each one took, by its kind."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def draw(self, draws: random.Random) -> tuple[str, int, float]:
        """A kind, which one of it, and a time from its beginning on."""
        kind = draws.choice(sorted(self.seconds))
        number = draws.randrange(len(self.seconds[kind]))
        return kind, number, draws.uniform(0, 1.2) * self.seconds[kind][number]


def told(stream: IO[str]) -> Iterator[str]:
    """The parts that a training tells of, as they begin and end."""
    for line in stream:
        text = line.strip().lstrip("/")
        if text.startswith("@"):
            yield line.strip()


def undisturbed(place: Place, output: Path) -> Parts:
    """Train without a kill; how long the parts took."""
    open_at, parts, process = dict[str, float](), Parts(), place.begin(output)
    for what in told(process.stderr):
        now = time.monotonic()
        if what.startswith("/"):
            parts.seconds.setdefault(what[2:], []).append(now - open_at[what[1:]])
        else:
            open_at[what] = now
    assert process.wait() == 0
    return parts


def strike(
    process: Training, parts: Parts, number: int, twice: bool, draws: random.Random
) -> tuple[str, str]:
    """Send a signal in a part that is drawn: the part, or "too late", and what was said."""
    kind, which, seconds = parts.draw(draws)
    lines, seen = list[str](), 0
    for line in process.stderr:
        lines.append(line)
        seen += line.strip() == f"@{kind}"
        if seen > which:
            break
    else:
        return "too late", "".join(lines)
    time.sleep(seconds)
    process.kill(number)
    if twice:
        time.sleep(draws.uniform(0, 0.02))
        process.kill(number)
    lines += process.stderr
    return kind, "".join(lines)


# --- what is found --------------------------------------------------------------------------------


def fault(output: Path) -> str:
    """What of the files of a killed training is not whole; empty if all are."""
    checks: dict[str, Callable[[Path], object]] = {
        "adapter.onnx_adapter": read_adapter,
        "peft": read_adapter,
        "bundle": lambda p: load_safetensors(p / "weights.safetensors"),
        "checkpoint": lambda p: (load_safetensors(p / "state.safetensors"),
                                 json.loads((p / "loop.json").read_text())),
        "steps.csv": _table,
        "loss.csv": _table,
        "samples.jsonl": lambda p: [json.loads(line) for line in p.read_text().splitlines()],
    }  # fmt: skip
    for name, check in checks.items():
        try:
            if (output / name).exists():
                check(output / name)
        except Exception as error:  # whatever a damaged file makes them raise
            return f"{name}: {error!r}"
    return ""


def _table(path: Path) -> list[dict[str, str | None]]:
    with path.open() as file:
        return [{n: row.get(n) for n in COLUMNS} for row in csv.DictReader(file)]


def result(output: Path) -> dict[str, Any]:
    """What a training has made, without what depends on the clock."""
    files = ("adapter.onnx_adapter", "peft/adapter_model.safetensors", "samples.jsonl")
    return {
        **{name: (output / name).read_bytes() for name in files},
        **{name: _table(output / name) for name in ("steps.csv", "loss.csv")},
        "files": sorted(p.name for p in output.iterdir()),
    }


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """The names of what differs."""
    return [name for name in wanted if found[name] != wanted[name]]


def measure(
    kills: int, seed: int, number: int = signal.SIGKILL, *, twice: bool = False
) -> Counter[str]:
    """So many kills; counts by the part that was struck, and of what came of them."""
    draws, found = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        place = make_place(Path(name) / "m")
        parts = undisturbed(place, Path(name) / "whole")
        wanted = result(Path(name) / "whole")
        while sum(found[kind] for kind in parts.seconds) < kills:
            output = Path(name) / "out"
            for trouble in _lives(place, output, parts, found, (number, twice, draws)):
                found["trouble"] += 1
                print(trouble, flush=True)
            process = place.begin(output, "--resume")
            said = process.stderr.read()
            differing = ["the end"] if process.wait() else differences(result(output), wanted)
            found["equal" if not differing else "different"] += 1
            if differing:
                print(f"{', '.join(differing)} differ\n{said[-2000:]}", flush=True)
            shutil.rmtree(output)
            print(dict(found), flush=True)
    return found


def _lives(
    place: Place, output: Path, parts: Parts, found: Counter[str], how: tuple[int, bool, Any]
) -> Iterator[str]:
    """Kill a training once or more; what of its files was not whole, and what it should not say."""
    number, twice, draws = how
    more = list[str]()
    while not more or draws.random() < _AGAIN:
        process = place.begin(output, *more)
        kind, said = strike(process, parts, number, twice, draws)
        process.wait()
        found[kind] += 1
        wrong = fault(output)
        if wrong or "Traceback" in said:
            yield f"{kind}: {wrong or said}"
        more = ["--resume"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--signal", choices=["KILL", "INT"], default="KILL")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--twice", action="store_true")
    args = parser.parse_args()
    number = getattr(signal, f"SIG{args.signal}")
    found = measure(args.kills, args.seed, number, twice=args.twice)
    print(json.dumps(found))
    sys.exit(bool(found["different"] or found["trouble"]))


if __name__ == "__main__":
    main()
