"""`flow2onnx cache`: the openings of large jobs that are kept on disk, shown or removed."""

import time

import click
from flow2onnx_runtime.view.texts import size_text

from flow2onnx.cli.options import check_together, json_option
from flow2onnx.cli.show import heading, note, print_json, print_table
from flow2onnx.engine.opening_cache import ENVIRONMENT, Entry, OpeningCache

__all__ = ["cache"]

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


@click.command(epilog="""\b
Examples:
  flow2onnx cache
  flow2onnx cache --clear
  FLOW2ONNX_CACHE=0 flow2onnx run train.py      (nothing is read or kept)""")  # fmt: skip
@click.option("--clear", is_flag=True, help="Remove all openings.")
@json_option
def cache(clear: bool, as_json: bool) -> None:
    """Show the openings that are kept for the next process, or remove them.

    A job of 1,000 nodes and more on the CPU is opened from there, if nothing that decides on it
    has changed; what was not used for longest goes first when there is no more room.
    """
    check_together(excludes=[("clear", "as_json")])
    found = OpeningCache.of_user()
    if found is None:
        print_json(None) if as_json else note(f"{ENVIRONMENT} is off: nothing is kept")
        return
    if clear:
        count = found.clear()
        note(f"{count} opening{'s' * (count != 1)} removed from {found.folder}")
        return
    entries = found.entries()
    if as_json:
        rows = [{"job": e.job, "bytes": e.size, "used": e.used} for e in entries]
        print_json({"folder": str(found.folder), "limit": found.limit, "openings": rows})
        return
    total = sum(entry.size for entry in entries)
    heading(str(found.folder), f"{size_text(total)} of {size_text(found.limit)}")
    if entries:
        print_table(
            ("job", "size", "used"), list(map(_row, entries)), right=("size", "used"),
            whole=("size", "used"),
        )  # fmt: skip
    else:
        note("nothing is kept yet")


def _row(entry: Entry) -> tuple[str, str, str]:
    return entry.job, size_text(entry.size), f"{_age(time.time() - entry.used)} ago"


def _age(seconds: float) -> str:
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
