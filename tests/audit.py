"""The packages of `requirements.lock`: their licences, and the vulnerabilities known of them.

``python -m tests.audit [--tools FOLDER] [--strict]`` asks pip-licenses about what is installed here
and pip-audit about what is locked. It ends with 1 for a licence that is not in the table below, a
package that is installed otherwise than locked, or a known vulnerability. Where the service that
knows vulnerabilities cannot be asked, a line says so, and with --strict it ends with 1.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["ALLOWED", "EXCEPTIONS", "installation_findings", "licence_findings", "lock_findings",
           "locked", "required",
           "vulnerability_findings"]  # fmt: skip

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
# What is locked: the extras of each of our distributions.
_OURS = {"runtime/python": ["cpu"], "runtime/server": ["cpu"], "runtime/native": ["onednn"],
         ".": ["cpu", "cli", "plot", "data", "images", "serve", "lora", "dev"]}  # fmt: skip

# Licences that ask for no more than a notice, or hold for the package's own files alone (MPL); by
# their SPDX names and as older metadata spell them.
ALLOWED = frozenset({
    "0BSD", "Apache", "Apache-2.0", "Apache Software License", "BSD-2-Clause", "BSD-3-Clause",
    "3-Clause BSD License", "BSD License", "CC0-1.0", "ISC", "MIT", "MIT-CMU", "MIT License",
    "MPL-2.0", "Mozilla Public License 2.0 (MPL 2.0)", "PSF-2.0",
    "Python Software Foundation License", "Zlib", "ZPL-2.1",
})  # fmt: skip
# Packages whose metadata name no licence of these: what they have, and why that will do.
EXCEPTIONS: Mapping[str, str] = {
    "atheris": "Apache-2.0 by its LICENSE; the metadata name none, and only tests use it",
    "onednn-cpu-gomp": "Apache-2.0 by its LICENSE.txt; a classifier says Other/Proprietary too",
}
# Vulnerabilities that do not concern us, by their number, each with the reason.
ACCEPTED: Mapping[str, str] = {}


def main() -> int:
    """Print the findings, or that there are none."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    parser.add_argument("--tools", type=Path, default=Path(sys.executable).parent,
                        help="the folder with pip-audit and pip-licenses")  # fmt: skip
    parser.add_argument("--strict", action="store_true")
    asked = parser.parse_args()
    wanted = locked(LOCK.read_text())
    findings = [
        *lock_findings(wanted, required(ROOT)),
        *installation_findings(wanted),
        *licence_findings(wanted, _licences(asked.tools)),
    ]
    found, silent = vulnerability_findings(_vulnerabilities(asked.tools), wanted)
    findings += found
    print(f"licences: {len(wanted)} packages, {len(ALLOWED)} licences allowed")
    for finding in findings:
        print(f"FOUND {finding}")
    if silent:
        print(f"vulnerabilities: could not be asked: {silent}")
    print(f"{len(findings)} findings")
    return 1 if findings or (silent and asked.strict) else 0


def locked(text: str) -> dict[str, str]:
    """The versions of the packages that a lock file has for this Python and system, by name."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    found = {}
    for line in lines:
        requirement = line.partition(" --hash")[0].strip()
        if requirement and not requirement.startswith("#"):
            parsed = Requirement(requirement)
            if parsed.marker is None or parsed.marker.evaluate():
                (pin,) = parsed.specifier
                found[canonicalize_name(parsed.name)] = pin.version
    return found


def required(root: Path) -> Iterator[Requirement]:
    """The packages that our distributions ask for on this system, without each other."""
    for folder, extras in _OURS.items():
        project = tomllib.loads((root / folder / "pyproject.toml").read_text())["project"]
        optional = project.get("optional-dependencies", {})
        for text in (*project["dependencies"], *(t for e in extras for t in optional[e])):
            asked = Requirement(text)
            if not asked.name.startswith("flow2onnx") and (
                asked.marker is None or asked.marker.evaluate()
            ):
                yield asked


def lock_findings(wanted: Mapping[str, str], asked: Iterable[Requirement]) -> Iterator[str]:
    """A line for each requirement that the lock does not meet."""
    for requirement in asked:
        number = wanted.get(canonicalize_name(requirement.name), "none")
        if number == "none" or number not in requirement.specifier:
            yield f"{requirement} is asked for, locked is {number}: make lock"


def installation_findings(wanted: Mapping[str, str]) -> Iterator[str]:
    """A line for each package that is not installed as it is locked."""
    for name, number in wanted.items():
        try:
            present = version(name)
        except PackageNotFoundError:
            present = "no version"
        if present != number:
            yield f"{name}: {number} is locked, {present} is installed: make LOCKED=1, or make lock"


def licence_findings(wanted: Mapping[str, str], licences: Mapping[str, str]) -> Iterator[str]:
    """A line for each package whose licence is unknown or not allowed."""
    for name in wanted:
        text = licences.get(name, "UNKNOWN")
        if name not in EXCEPTIONS and not is_allowed(text):
            yield f"{name}: its licence is {text!r}, which tests/audit.py does not allow"


def is_allowed(text: str) -> bool:
    """True for an expression of allowed licences: any of those with OR, all of the others."""
    return text in ALLOWED or any(
        all(part.strip("() ") in ALLOWED for part in re.split(r"\bAND\b|;", choice))
        for choice in re.split(r"\bOR\b", text)
    )


def vulnerability_findings(
    report: Mapping[str, object] | str, wanted: Mapping[str, str]
) -> tuple[list[str], str]:
    """A line for each vulnerability; and why some packages could not be asked for, or nothing.

    `report`: pip-audit's, or what it said in place of one.
    """
    if isinstance(report, str):
        return [], report
    entries = report["dependencies"]
    assert isinstance(entries, list)
    skipped = [entry["name"] for entry in entries if "skip_reason" in entry]
    asked = {canonicalize_name(e["name"]) for e in entries if "skip_reason" not in e}
    found = [
        f"{entry['name']} {entry['version']}: {fault['id']}, remedied in "
        f"{', '.join(fault['fix_versions']) or 'no version'}"
        for entry in entries
        for fault in entry.get("vulns", ())
        if fault["id"] not in ACCEPTED
    ]
    missing = sorted({*skipped, *(wanted.keys() - asked)})
    silent = f"{len(missing)} of {len(wanted)} packages, such as {missing[0]}" if missing else ""
    return found, silent


def _licences(tools: Path) -> dict[str, str]:
    """The licences of what is installed here, by package."""
    command = [str(tools / "pip-licenses"), "--python", sys.executable, "--from=mixed",
               "--format=json", "--with-system"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {canonicalize_name(row["Name"]): row["License"] for row in json.loads(done.stdout)}


def _vulnerabilities(tools: Path) -> Mapping[str, object] | str:
    """pip-audit's report of the locked packages, or its last words where there is none."""
    command = [str(tools / "pip-audit"), "--requirement", str(LOCK), "--require-hashes",
               "--disable-pip", "--format", "json", "--progress-spinner", "off"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return parse_report(done.stdout, done.stderr)


def parse_report(output: str, errors: str) -> Mapping[str, object] | str:
    """The report in what pip-audit wrote, or the last line of its errors."""
    try:
        report: Mapping[str, object] = json.loads(output)
    except ValueError:
        lines: Sequence[str] = errors.strip().splitlines() or ["pip-audit said nothing"]
        return lines[-1][:300]
    return report


if __name__ == "__main__":
    sys.exit(main())
