"""The version of a release: that of the newest tag, written to every place that has one.

A tag `vX.Y.Z` is the home of a version. What is built from a commit behind the tag is a
development version of the next release. An archive made by `git archive` has the same description
in `release/archive.txt`; a tree that knows of no tag has the number that its files state.
"""

import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

__all__ = ["PLACES", "Place", "ReleaseError", "described", "disagreements", "release_version",
           "semantic", "stamp", "tree_version"]  # fmt: skip

_HOME = "runtime/python/pyproject.toml"
_ARCHIVE = "release/archive.txt"
_DESCRIPTION = re.compile(r"v(?P<tag>[0-9][^-]*)(?:-(?P<behind>\d+)-g[0-9a-f]+)?")
# As PEP 440 has it, or as `semantic` spells that.
_NUMBER = (
    r"(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?(?:\.dev\d+)?(?:-(?:alpha|beta|rc|dev)\.\d+(?:\.dev\.\d+)?)?)"
)


class ReleaseError(Exception):
    """A release that cannot be made, with what to do."""


def semantic(version: Version) -> str:
    """A version as npm, Cargo and NuGet spell it: 1.2.0rc1 is 1.2.0-rc.1, 1.2.0.dev3 1.2.0-dev.3.

    Of versions that PEP 440 orders this keeps the order within one kind: dev, a, b, rc, final.
    """
    name = {"a": "alpha", "b": "beta", "rc": "rc"}
    ends = [f"{name[version.pre[0]]}.{version.pre[1]}"] if version.pre else []
    if version.dev is not None:
        ends.append(f"dev.{version.dev}")
    return version.base_version + ("-" + ".".join(ends) if ends else "")


@dataclass(frozen=True)
class Place:
    """Where files state the version: `text` with `{}` for the number, in the spelling `form`.

    `form` is `python` (PEP 440), `semantic`, or `numbers` for what takes numbers alone.
    """

    text: str
    form: str = "python"

    def spelled(self, version: Version) -> str:
        """The number as this place has it."""
        spellings = {
            "python": str(version),
            "semantic": semantic(version),
            "numbers": version.base_version,
        }
        return spellings[self.form]

    @property
    def pattern(self) -> re.Pattern[str]:
        """The place in a file; its one group is the number."""
        before, _, after = self.text.partition("{}")
        return re.compile(re.escape(before) + _NUMBER + re.escape(after), re.MULTILINE)


_MODULE = (Place('__version__ = "{}"'),)
_PYTHON = (Place('\nversion = "{}"\n'), Place('"flow2onnx-runtime=={}"'))
_CRATE = (Place('name = "flow2onnx-runtime"\nversion = "{}"', "semantic"),)
_PACKAGE = (Place('"flow2onnx-runtime": "^{}"', "semantic"),)
_NUGET = (Place('Include="Flow2Onnx" Version="{}"', "semantic"),)
_ARCHIVES = (Place("flow2onnx-runtime-{}"),)
_IMAGE = (Place("flow2onnx-serve:{}"),)
_RANKS = (Place("flow2onnx-torch:{}"), Place("flow2onnx-mpi:{}"))

# Every file that states the version, and how. Recorded data says which version wrote it, and stays.
PLACES: Mapping[str, tuple[Place, ...]] = {
    _HOME: (Place('\nversion = "{}"\n'),),
    "pyproject.toml": (*_PYTHON, Place('"flow2onnx-serve=={}"')),
    "runtime/server/pyproject.toml": _PYTHON,
    "runtime/native/pyproject.toml": _PYTHON,
    "flow2onnx/__init__.py": _MODULE,
    "runtime/python/flow2onnx_runtime/__init__.py": _MODULE,
    "runtime/server/flow2onnx_serve/__init__.py": _MODULE,
    "release/conda/recipe.yaml": (Place('  version: "{}"\n'),),
    "runtime/js/package.json": (Place('\n  "version": "{}",', "semantic"),),
    "runtime/js/package-lock.json": (
        Place('{\n  "name": "flow2onnx-runtime",\n  "version": "{}",', "semantic"),
        Place('{\n      "name": "flow2onnx-runtime",\n      "version": "{}",', "semantic"),
    ),
    "runtime/cpp/vcpkg.json": (Place('"version": "{}"', "numbers"),),
    "runtime/rust/Cargo.toml": _CRATE,
    "runtime/rust/Cargo.lock": _CRATE,
    "runtime/csharp/Flow2Onnx/Flow2Onnx.csproj": (Place("<Version>{}</Version>", "semantic"),),
    "runtime/swift/README.md": _ARCHIVES,
    "examples/devices/README.md": _ARCHIVES,
    "examples/devices/android-cpp/app/build.gradle": _ARCHIVES,
    "examples/devices/ios/project.yml": _ARCHIVES,
    "examples/devices/csharp-console/Digits.csproj": _NUGET,
    "examples/devices/csharp-maui/Digits.csproj": _NUGET,
    "examples/devices/electron/package.json": _PACKAGE,
    "examples/devices/react-native/package.json": _PACKAGE,
    "examples/devices/web/package.json": _PACKAGE,
    "examples/distributed/Dockerfile": _RANKS,
    "examples/distributed/README.md": _RANKS,
    "examples/distributed/k8s/mpijob.yaml": _RANKS[1:],
    "examples/distributed/k8s/pytorchjob.yaml": _RANKS[:1],
    "examples/serving/Dockerfile": _IMAGE,
    "examples/serving/README.md": _IMAGE,
    "examples/serving/k8s/kustomization.yaml": (Place("newTag: {}"),),
    "examples/serving/k8s/upload.yaml": _IMAGE,
    "examples/serving/kserve/runtime.yaml": _IMAGE,
}


def tree_version(root: Path) -> Version:
    """The number that the files state."""
    project = tomllib.loads((root / _HOME).read_text("utf-8"))["project"]
    return Version(project["version"])


def release_version(root: Path) -> Version:
    """The version of what is built of a tree: by tag, by the archive's description, or stated."""
    stated = tree_version(root)
    if (root / ".git").exists():
        text = _git(root, "describe", "--tags", "--match", "v[0-9]*")
        if text is not None:
            return described(text)
        count = _git(root, "rev-list", "--count", "HEAD")
        return stated if count is None else Version(f"{stated.base_version}.dev{count}")
    note = (root / _ARCHIVE).read_text("utf-8").strip() if (root / _ARCHIVE).exists() else ""
    return described(note) if note.startswith("v") else stated


def described(text: str) -> Version:
    """The version that a description by `git describe` stands for.

    `v1.2.3` is 1.2.3; `v1.2.3-4-gabc`, four commits later, is 1.2.4.dev4, and four commits behind
    v1.2.3rc1 there is 1.2.3rc2.dev4. Raises `ReleaseError` for a tag that is no version.
    """
    found = _DESCRIPTION.fullmatch(text.strip())
    try:
        tag = Version(found["tag"]) if found else None
    except InvalidVersion:
        tag = None
    if found is None or tag is None or len(tag.release) != 3 or tag.local or tag.post or tag.epoch:
        raise ReleaseError(f"{text.strip()!r} is no version: name tags v1.2.3 or v1.2.3rc1")
    if not found["behind"]:
        return tag
    major, minor, patch = tag.release
    if tag.pre:
        return Version(f"{tag.base_version}{tag.pre[0]}{tag.pre[1] + 1}.dev{found['behind']}")
    return Version(f"{major}.{minor}.{patch + 1}.dev{found['behind']}")


def stamp(root: Path, version: Version) -> list[str]:
    """Write a version to all places of a tree; the files that changed.

    Raises `ReleaseError`, before anything is written, where a place is missing.
    """
    texts = dict(_stamped(root, version))
    changed = [path for path, (old, new) in texts.items() if old != new]
    for path in changed:
        (root / path).write_text(texts[path][1], "utf-8")
    return changed


def disagreements(root: Path) -> list[str]:
    """A line for each place that states another version than the tree's."""
    version = tree_version(root)
    found = []
    for path, places in PLACES.items():
        text = (root / path).read_text("utf-8")
        for place in places:
            wrong = set(place.pattern.findall(text)) - {place.spelled(version)}
            found += [f"{path} states {number}, the tree is {version}" for number in sorted(wrong)]
    return found


def _stamped(root: Path, version: Version) -> Iterator[tuple[str, tuple[str, str]]]:
    for path, places in PLACES.items():
        old = new = (root / path).read_text("utf-8")
        for place in places:
            new, count = place.pattern.subn(place.text.replace("{}", place.spelled(version)), new)
            if not count:
                raise ReleaseError(f"{path} has no {place.text!r}: look at PLACES in {__file__}")
        yield path, (old, new)


def _git(root: Path, *words: str) -> str | None:
    """The answer of git, or None if it fails."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
