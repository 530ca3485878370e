"""A process of libFuzzer, whatever it fuzzes: started, read, started again after a crash."""

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Report", "dictionary", "fuzz"]

_STATUS = re.compile(r"^#(\d+)\s+\S+.*?cov: (\d+) ft: (\d+)", re.MULTILINE)
_HANG = 30  # seconds of the clock, as the machine may be busy; the target counts its processor time
_MEMORY = 2048  # megabytes of the process; the target counts what an input adds
_MOST_CRASHES = 3  # of one target, which would find the same one for ever


@dataclass
class Report:
    """The result of fuzzing a target: inputs run, code reached, the first lines of each crash."""

    target: str
    executions: int = 0
    edges: int = 0
    features: int = 0
    seconds: float = 0.0
    crashes: list[str] = field(default_factory=list)


def fuzz(
    name: str,
    command: Sequence[str],
    seconds: float,
    folder: Path,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Report:
    """Fuzz for some seconds; `folder` has the inputs in `corpus`, and gets those that crash."""
    report, began = Report(name), time.monotonic()
    while (left := seconds - report.seconds) >= 1 and len(report.crashes) < _MOST_CRASHES:
        done = subprocess.run(
            [*command, f"-max_total_time={round(left)}", f"-timeout={_HANG}",
             f"-rss_limit_mb={_MEMORY}", f"-artifact_prefix={folder}{os.sep}",
             *options, str(folder / "corpus")],
            capture_output=True, text=True, errors="replace", check=False,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        _add(report, done.stderr)
        report.seconds = time.monotonic() - began
        if done.returncode:
            report.crashes.append(_summary(done.stderr))
    return report


def _add(report: Report, text: str) -> None:
    found = [tuple(map(int, match.groups())) for match in _STATUS.finditer(text)]
    if found:
        executions, edges, features = (max(column) for column in zip(*found, strict=True))
        report.executions += executions
        report.edges = max(report.edges, edges)
        report.features = max(report.features, features)


def _summary(text: str) -> str:
    """The lines that say what happened, of all that libFuzzer writes when it ends."""
    lines = text.splitlines()
    marks = ("=== Uncaught", "ERROR:", "runtime error", "Error")
    first = next((i for i, line in enumerate(lines) if any(m in line for m in marks)), -30)
    return "\n".join(line for line in lines[first:] if line.strip())[:3000]


def dictionary(tokens: Sequence[bytes], path: Path) -> str:
    """libFuzzer's option for a file of tokens, which is written."""
    texts = ("".join(f"\\x{byte:02x}" for byte in token) for token in tokens)
    path.write_text("".join(f'"{text}"\n' for text in texts))
    return f"-dict={path}"
