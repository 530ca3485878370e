"""The commands of a release; run in the repository's root."""

import argparse
import contextlib
import filecmp
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from release.versions import ReleaseError, release_version, stamp, tree_version

if TYPE_CHECKING:  # asking for the version needs none of the tools that build
    from release.build import Builder

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Run a command; 1 where something is not as it should be."""
    asked = _arguments()
    try:
        return int(asked.command(asked))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("version", help="print the version of what would be built")
    one.set_defaults(command=_version)
    one = commands.add_parser("stamp", help="write a version to all places of this tree")
    one.add_argument("version", type=_number)
    one.set_defaults(command=_stamp)
    for name, command, text in (
        ("build", _build, "write all files of a release"),
        ("check", _check, "build them, install each, run its program"),
        ("reproduce", _reproduce, "build twice, in two places, and compare bytes"),
    ):
        one = commands.add_parser(name, help=text)
        one.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
        one.add_argument("--as", dest="version", type=_number, help="a version that no tag has")
        one.set_defaults(command=command)
        if name == "check":
            one.add_argument("--strict", action="store_true", help="fail if something is skipped")
            one.add_argument("--python", action="append", help="this one alone, such as 3.11")
    return parser.parse_args()


def _version(asked: argparse.Namespace) -> int:
    print(release_version(ROOT))
    return 0


def _stamp(asked: argparse.Namespace) -> int:
    old = tree_version(ROOT)
    for path in stamp(ROOT, asked.version):
        print(f"{path}: {old} is {asked.version} now")
    return 0


def _build(asked: argparse.Namespace) -> int:
    with _folder() as work:
        missing = _builder(asked, work).build()
    for path in sorted(asked.out.iterdir()):
        print(f"{path.stat().st_size:>10}  {path}")
    for what, why in missing.items():
        print(f"not built: {what}: {why}")
    return 1 if missing else 0


def _check(asked: argparse.Namespace) -> int:
    from release.check import PYTHONS, Rehearsal, table

    with _folder() as work:
        builder = _builder(asked, work / "build")
        rows = Rehearsal(builder, work / "tried", asked.python or PYTHONS).run()
    print(f"\n{table(rows)}")
    failing = {"FAILED", "skipped"} if asked.strict else {"FAILED"}
    return 1 if any(row.result in failing for row in rows) else 0


def _reproduce(asked: argparse.Namespace) -> int:
    with _folder() as work:
        outs = []
        for place in ("here", "elsewhere/and/deeper"):  # paths of other lengths
            builder = replace(_builder(asked, work / place), out=work / place / "out", kept=None)
            builder.build()
            outs.append(builder.out)
        return _compare(*outs)


def _compare(one: Path, other: Path) -> int:
    names = sorted({path.name for folder in (one, other) for path in folder.iterdir()})
    equal, *_ = filecmp.cmpfiles(one, other, names, shallow=False)
    for name in names:
        print(f"{'equal' if name in equal else 'DIFFERS':<8} {name}")
    return 0 if sorted(equal) == names else 1


def _builder(asked: argparse.Namespace, work: Path) -> "Builder":
    from release.build import Builder

    version = asked.version or release_version(ROOT)
    return Builder(ROOT, work, asked.out.resolve(), version, ROOT / "build" / "release")


def _number(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise argparse.ArgumentTypeError(f"{text!r} is no version: 1.2.3, 1.2.3rc1") from None


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="flow2onnx-release-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
