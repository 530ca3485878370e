"""Fuzz the readers of untrusted input, led by the code that inputs reach.

``python -m tests.fuzz [TARGET ...] [--minutes 10] [--json FILE] [--grow]``: the time is shared out
evenly. Ends with 1 where an input crashed, hung, or raised what is no error of flow2onnx; the input
then lies in `build/fuzz/TARGET`. With `--grow`, small inputs that reach new code are kept in
`tests/fuzz/corpus`.
"""

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.fuzz import c_targets
from tests.fuzz.libfuzzer import Report, dictionary, fuzz
from tests.fuzz.target import CORPUS, NAMES, corpus, load, shared_scratch

BUILD = Path(__file__).parents[2] / "build" / "fuzz"
_LONGEST = 8192  # bytes of an input, where a target does not say another
_KEPT = 6 << 10  # bytes kept of one target
_SMALL = 2048  # bytes of an input that is kept


def main() -> int:
    """Fuzz, and print a line for each target and the crashes in full."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=[])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", type=Path, help="where the reports are written too")
    parser.add_argument("--grow", action="store_true")
    asked = parser.parse_args()
    known = (*NAMES, *c_targets.C_NAMES)
    if strange := set(asked.targets) - set(known):
        parser.error(f"no target {', '.join(sorted(strange))}; there are {', '.join(known)}")
    chosen = asked.targets or list(known)
    print(f"{'target':16} {'executions':>10} {'edges':>6} {'features':>8} {'crashes':>7} {'s':>6}")
    reports = []
    for name in chosen:
        report = fuzz_target(name, asked.minutes * 60 / len(chosen), grows=asked.grow)
        reports.append(report)
        print(f"{name:16} {report.executions:10,} {report.edges:6} {report.features:8} "
              f"{len(report.crashes):7} {report.seconds:6.0f}", flush=True)  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps([asdict(r) for r in reports], indent=1) + "\n")
    for report in reports:
        for crash in report.crashes:
            print(f"\n{report.target}, the input is in {BUILD / report.target}:\n{crash}")
    return 1 if any(r.crashes for r in reports) else 0


def fuzz_target(name: str, seconds: float, *, grows: bool = False) -> Report:
    """Fuzz one target, beginning with its seeds and the inputs in the repository."""
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "corpus").mkdir(parents=True)
    inputs = c_targets.inputs_of(name) if name in c_targets.C_NAMES else name
    target = load(inputs)
    for data in (*target.seeds(), *corpus(inputs)):
        (folder / "corpus" / _name(data)).write_bytes(data)
    options = [
        dictionary(target.TOKENS, folder / "tokens"),
        f"-max_len={getattr(target, 'LONGEST', _LONGEST)}",
    ]
    command, environment = _command(name)
    with shared_scratch() as place:
        report = fuzz(name, command, seconds, folder, options, {**environment, **place})
    if grows:
        _grow(inputs, folder / "corpus")
    return report


def _command(name: str) -> tuple[Sequence[str], Mapping[str, str]]:
    if name in c_targets.C_NAMES:
        return [str(c_targets.build_fuzzer(BUILD / "c"))], c_targets.environment(name)
    return [sys.executable, "-m", "tests.fuzz.worker", name], {}


def _grow(inputs: str, found: Path) -> None:
    """Keep the smallest inputs that libFuzzer kept as they reach what others do not."""
    known = {_name(data) for data in (*load(inputs).seeds(), *corpus(inputs))}
    (CORPUS / inputs).mkdir(exist_ok=True, parents=True)
    kept = sum(len(data) for data in corpus(inputs))
    for data in sorted((path.read_bytes() for path in found.iterdir()), key=len):
        kept += len(data)
        if len(data) > _SMALL or kept > _KEPT:
            break
        if _name(data) not in known:
            (CORPUS / inputs / _name(data)).write_bytes(data)


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
