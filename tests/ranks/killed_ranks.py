"""SIGKILL of a random rank at a random moment: all end, and training goes on to the same bits.

Usage: python -m tests.ranks.killed_ranks [--kills 100] [--ranks 2] [--engine mpi] [--at-once 2]
       [--restarts]

By default each kill has a job of its own, begun by `flow2onnx launch`: its end is clean if the
launcher fails within a limit, names the rank and its signal, and leaves no process. The job is then
launched again, and goes on from whatever checkpoint there is. With --restarts one launcher begins
all ranks anew after each kill, and an end is clean if no process of the time before is left. Then
--kills counts resumes that wrote a digest, and kills before that come on top of them.

What goes on is equal if all digests that the ranks write, from the first step behind the checkpoint
on, are those of a training that nobody disturbed.
"""

import argparse
import dataclasses
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ranks.ranks import ROOT, ends, start

PROGRAM = str(ROOT / "tests/ranks/steady.py")
MARK = "FLOW2ONNX_TEST_MARK"
DEADLINE, LIMIT = 10, 60.0  # seconds: of a rank that waits, and for the end of all
_PATIENCE = 600.0
_STEPS = 3000  # more than a kill waits for
_STEPS_RESUMED = 40  # of a job that was launched again, with some checkpoints
_STEPS_OF_RESTARTS = 1000  # of one training, which many kills disturb
_POLL = 0.2  # seconds between two looks at all processes
# A third of the kills come while the ranks start, the others while they train and save.
_STARTING, _SECONDS_OF_START, _SECONDS_OF_TRAINING = 1 / 3, 4.0, 2.0
Digests = Mapping[int, str]


@dataclass(frozen=True)
class Kill:
    """The outcome of one kill: when it was, how long all took to end, where training went on.

    Of ranks that a launcher begins anew it is the training that was killed that had gone on there.
    """

    rank: int
    when: str
    seconds: float
    first: int | None  # step of its first digest; None if it was killed before
    fault: str = ""  # why the end was not clean
    difference: str = ""  # which digest is another


class _EndedError(Exception):
    """A launcher that ended before what was waited for."""


# --- processes ------------------------------------------------------------------------------------


def marked(mark: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Processes with a mark in their environment: their numbers and environments."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            content = (folder / "environ").read_bytes()
        except OSError:
            continue
        pairs = (part.decode(errors="replace").partition("=") for part in content.split(b"\0"))
        environment = {name: value for name, _, value in pairs}
        if environment.get(MARK) == mark:
            yield int(folder.name), environment


def ranks_of(mark: str) -> dict[int, int]:
    """The process of each rank that has been started."""
    names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    return {
        int(environment[name]): number
        for number, environment in marked(mark)
        for name in names
        if name in environment
    }


def launch(
    engine: str,
    count: int,
    folder: Path,
    mark: str,
    *options: str,
    steps: int = _STEPS,
    most: int = _STEPS,
) -> Any:
    """The launcher of a training in a folder."""
    folder.mkdir(exist_ok=True)
    face = "torch" if engine == "torch" else "mpi"
    arguments = ["-m", "flow2onnx", "launch", "-n", str(count), "--engine", face, *options]
    arguments += ["--deadline", str(DEADLINE), PROGRAM, str(folder), str(steps), str(most)]
    return start(engine, arguments, **{MARK: mark})


def wait_for(what: Callable[[], bool], process: Any) -> None:
    """Return once `what` is so. Raises `_EndedError` if the launcher ends before."""
    end = time.monotonic() + _PATIENCE
    while not what():
        if process.poll() is not None:
            raise _EndedError
        assert time.monotonic() < end, "nothing goes on"
        time.sleep(_POLL)


# --- what was trained -----------------------------------------------------------------------------


def lines_of(folder: Path, rank: int) -> list[tuple[str, int, str]]:
    """The lines of a rank: the kind of moment, the step and the digest of all variables."""
    path = folder / f"digests-{rank}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(what, int(step), digest) for what, step, digest in map(str.split, lines)]


def undisturbed(
    engine: str, count: int, folder: Path, *, steps: int = _STEPS, most: int = _STEPS
) -> Digests:
    """The digests by step of a training without a kill."""
    process = launch(engine, count, folder, uuid.uuid4().hex, steps=steps, most=most)
    ((status, _, errors),) = ends([process], _PATIENCE)
    assert status == 0, errors[-2000:]
    return {step: digest for _, step, digest in lines_of(folder, 0)}


def difference(lines: list[tuple[str, int, str]], expected: Digests) -> str:
    """The first moment at which variables are others than undisturbed; empty without one."""
    for what, step, digest in lines:
        if expected[step] != digest:
            return f"variables differ at {what} {step}"
    return ""


# --- kills ----------------------------------------------------------------------------------------


def strike(
    process: Any, folder: Path, mark: str, count: int, before: set[int], draws: random.Random
) -> tuple[int, str, float, list[int]]:
    """Kill a rank that is none of the processes `before`: which, when, at what time, among whom.

    The moment is drawn: seconds from the start of the process, or from its first step.
    """
    victim = draws.randrange(count)

    def present() -> dict[int, int]:
        return {r: n for r, n in ranks_of(mark).items() if n not in before}

    wait_for(lambda: victim in present(), process)
    if draws.random() < _STARTING:
        when = "starting"
        time.sleep(draws.uniform(0, _SECONDS_OF_START))
    else:
        when, told = "training", len(lines_of(folder, victim))
        wait_for(lambda: len(lines_of(folder, victim)) > told, process)
        time.sleep(draws.uniform(0, _SECONDS_OF_TRAINING))
    alive = present()
    if victim in alive:
        os.kill(alive[victim], signal.SIGKILL)
    else:
        when = "too late"
    return victim, when, time.monotonic(), sorted(alive.values())


def kill_a_job(
    engine: str, count: int, folder: Path, expected: Digests, draws: random.Random
) -> Kill | None:
    """One kill of a job, which is launched again; None if the job was faster."""
    mark = uuid.uuid4().hex
    process = launch(engine, count, folder, mark)
    try:
        victim, when, struck, _ = strike(process, folder, mark, count, set(), draws)
    except _EndedError:
        raise AssertionError(process.communicate()) from None
    ((status, _, errors),) = ends([process], _PATIENCE)
    while list(marked(mark)) and time.monotonic() - struck < LIMIT:
        time.sleep(_POLL)
    seconds = time.monotonic() - struck
    told = [len(lines_of(folder, rank)) for rank in range(count)]
    if when == "too late" or any(x[:2] == ("end", _STEPS) for x in lines_of(folder, victim)):
        return None
    fault = _fault(status, errors, seconds, [n for n, _ in marked(mark)], victim)
    undisturbed(engine, count, folder, most=_STEPS_RESUMED)
    lines = [lines_of(folder, rank)[told[rank] :] for rank in range(count)]
    differs = "".join(difference(own, expected) for own in lines)
    return Kill(victim, when, seconds, lines[0][0][1], fault, differs)


def _fault(status: int, errors: str, seconds: float, left: list[int], victim: int) -> str:
    """Why the end of a job was not clean; empty if it was."""
    if status == 0:
        return "the launcher did not fail"
    if not all(word in errors for word in (f"rank {victim}", "SIGKILL")):
        return f"nobody names rank {victim} and its signal: {errors[-300:]}"
    if seconds > LIMIT:
        return f"it took {seconds:.1f} s"
    return f"processes {left} are left" if left else ""


def measure_jobs(kills: int, count: int, engine: str, seed: int, at_once: int) -> list[Kill]:
    """So many kills, each of a job of its own, of which some run at once."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        expected = undisturbed(engine, count, place / "undisturbed")

        def kill(number: int) -> Kill:
            draws, one = random.Random(f"{seed}/{number}"), None
            while one is None:
                with tempfile.TemporaryDirectory(dir=place) as own:
                    one = kill_a_job(engine, count, Path(own) / "t", expected, draws)
            return _shown(one)

        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(kill, range(kills)))


def measure_restarts(resumes: int, count: int, seed: int) -> list[Kill]:
    """As many kills as it takes until so many resumes have written a digest.

    One launcher begins all ranks anew after each; once a training is at its end, another begins.
    """
    draws, found = random.Random(seed), list[Kill]()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        expected = undisturbed("torch", count, place / "undisturbed", steps=_STEPS_OF_RESTARTS)
        while _resumes(found) < resumes:
            folder = place / str(len(found))
            for one in _kills_of_one(count, folder, expected, draws):
                found.append(_shown(one))
                if _resumes(found) == resumes:
                    break
    return found


def _kills_of_one(
    count: int, folder: Path, expected: Digests, draws: random.Random
) -> Iterator[Kill]:
    """Kills of one training until it ends, or nobody asks for more: it goes on to its end then."""
    mark, before, told, lives = uuid.uuid4().hex, set[int](), 0, 0
    most = ("--max-restarts", "1000000")
    process = launch("torch", count, folder, mark, *most, steps=_STEPS_OF_RESTARTS)
    try:
        while True:
            try:
                victim, when, struck, alive = strike(process, folder, mark, count, before, draws)
            except _EndedError:
                return
            if when == "too late":
                return
            wait_for(lambda alive=alive: not any(map(_is_there, alive)), process)
            seconds, before = time.monotonic() - struck, before | set(alive)
            lines, told = lines_of(folder, 0)[told:], len(lines_of(folder, 0))
            first = lines[0][1] if lines and lives else None
            fault = f"it took {seconds:.1f} s" if seconds > LIMIT else ""
            yield Kill(victim, when, seconds, first, fault, difference(lines, expected))
            lives += 1
    finally:
        ((status, _, errors),) = ends([process], _PATIENCE)
        assert status == 0, errors[-2000:]
        assert not list(marked(mark)), "processes are left"
        for rank in range(count):
            lines = lines_of(folder, rank)
            assert lines[-1][:2] == ("end", _STEPS_OF_RESTARTS), lines[-1]
            assert not difference(lines, expected), f"rank {rank}: {difference(lines, expected)}"


def _resumes(found: list[Kill]) -> int:
    return sum(one.first is not None for one in found)


def _is_there(number: int) -> bool:
    """True if a process is there and no zombie."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _shown(one: Kill) -> Kill:
    print(json.dumps(dataclasses.asdict(one)), flush=True)
    return one


def table(found: list[Kill], count: int, engine: str) -> str:
    """A table of Markdown with one line."""
    seconds = [one.seconds for one in found]
    cells = {
        "engine": engine, "ranks": count, "kills": len(found),
        "while ranks started": sum(one.when == "starting" for one in found),
        "clean ends": sum(not one.fault for one in found),
        "resumes with a digest": _resumes(found),
        "equal": sum(one.first is not None and not one.difference for one in found),
        "median to the end": f"{statistics.median(seconds):.1f} s",
        "longest": f"{max(seconds):.1f} s",
    }  # fmt: skip
    rows = (cells.keys(), ["---"] * len(cells), map(str, cells.values()))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="with --restarts: resumes")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--engine", choices=["torch", "mpi", "mpich"], default="torch")
    parser.add_argument("--at-once", type=int, default=1, help="jobs that run beside each other")
    parser.add_argument("--restarts", action="store_true", help="of one job, by torchrun")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.restarts:
        found = measure_restarts(args.kills, args.ranks, args.seed)
    else:
        found = measure_jobs(args.kills, args.ranks, args.engine, args.seed, args.at_once)
    print(table(found, args.ranks, args.engine + ", begun anew by the launcher" * args.restarts))
    sys.exit(any(one.fault or one.difference for one in found))


if __name__ == "__main__":
    main()
