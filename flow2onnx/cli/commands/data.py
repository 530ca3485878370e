"""`flow2onnx data`: build, show and check OFRecord files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flow2onnx.cli.options import check_together, json_option
from flow2onnx.cli.show import heading, note, output, print_json, print_table, size_text
from flow2onnx.data.build import (
    Source,
    array_source,
    build,
    check_file,
    features_of,
    files_of,
    image_source,
)
from flow2onnx.data.ofrecord import read_records

__all__ = ["data"]


@click.group(epilog="""\b
Examples:
  flow2onnx data build photos/ -o records/ --parts 8 --shuffle
  flow2onnx data build mnist.npz -o records/
  flow2onnx data show records/ --records 3
  flow2onnx data check records/ --image encoded""")  # fmt: skip
def data() -> None:
    """Build, show and check OFRecord files."""


@data.command("build")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", "target", required=True, type=click.Path(path_type=Path),
              help="The folder to write; it appears whole or not at all.")  # fmt: skip
@click.option("--parts", default=1, show_default=True, type=click.IntRange(1),
              help="Number of part files.")  # fmt: skip
@click.option("--suffix-length", default=5, show_default=True, type=click.IntRange(0),
              help="Digits of a part's number; 0 for as many as it has.")  # fmt: skip
@click.option("--image-feature", default="encoded", show_default=True,
              help="Feature of the encoded image.")  # fmt: skip
@click.option("--label-feature", default="class/label", show_default=True,
              help="Feature of the class, an int32.")  # fmt: skip
@click.option("--shuffle", is_flag=True, help="Write the records in random order.")
@click.option("--seed", default=0, show_default=True, help="Seed of that order.")
@click.option("--check-images", is_flag=True, help="Decode every image first.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier folder of part files.")
@json_option
def build_command(
    source: Path, target: Path, parts: int, suffix_length: int, image_feature: str,
    label_feature: str, shuffle: bool, seed: int, check_images: bool, overwrite: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Write SOURCE, a folder of images or an .npz or .npy file, as OFRecord part files.

    Each subfolder of images is a class, numbered by name from 0; labels.txt lists them. Each array
    of a file is a feature, each row of the arrays a record.
    """
    check_together({"seed": ["shuffle"]})
    if check_images and not source.is_dir():
        raise click.UsageError(f"--check-images is for a folder of images, {source} is a file")
    records: Source = (
        image_source(source, image_feature, label_feature, checks=check_images)
        if source.is_dir()
        else array_source(source)
    )
    with _bar("Writing", records.count) as progress:
        files = build(
            records, target, parts=parts, suffix_length=suffix_length, shuffle=shuffle, seed=seed,
            overwrite=overwrite, progress=progress,
        )  # fmt: skip
    if as_json:
        sizes = [{"file": str(f), "size": f.stat().st_size} for f in files]
        print_json({"folder": str(target), "records": records.count, "labels": records.labels,
                    "files": sizes})  # fmt: skip
        return
    size = size_text(sum(f.stat().st_size for f in files))
    note(f"{target}: {records.count} records in {len(files)} files, {size}", "bold green")


@data.command("show")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--records", "count", default=1, show_default=True, type=click.IntRange(0),
              help="How many records to show, from the first on.")  # fmt: skip
@click.option("--prefix", default="part-", show_default=True, help="How the parts are called.")
@json_option
def show_command(path: Path, count: int, prefix: str, as_json: bool) -> None:
    """List the part files of PATH, a folder or a file, and the features of the first records."""
    files = files_of(path, prefix)
    everything = (record for file in files for record in read_records(file))
    shown = [{"place": r.where, "features": features_of(r)} for r in islice(everything, count)]
    if as_json:
        sizes = [{"file": str(f), "size": f.stat().st_size} for f in files]
        print_json({"files": sizes, "records": shown})
        return
    print_table(("file", "size"), [(str(f), size_text(f.stat().st_size)) for f in files],
                right=("size",))  # fmt: skip
    for record in shown:
        heading(f"\n{record['place']}")
        _print_features(record["features"])


def _print_features(features: Any) -> None:
    print_table(
        ("feature", "kind", "values", "first"),
        [(name, f["kind"], f["count"], ", ".join(map(str, f["first"])))
         for name, f in features.items()],
        right=("values",),
    )  # fmt: skip


@data.command("check")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--image", "images", multiple=True, metavar="FEATURE",
              help="Decode the images of this feature too.")  # fmt: skip
@click.option("--prefix", default="part-", show_default=True, help="How the parts are called.")
@json_option
@click.pass_context
def check_command(
    context: click.Context, path: Path, images: tuple[str, ...], prefix: str, as_json: bool
) -> None:
    """Read every record of PATH, a folder or a file. The exit code is 1 if any is damaged."""
    files = files_of(path, prefix)
    with _bar("Reading", len(files)) as progress:
        checked = []
        for i, file in enumerate(files):
            checked.append(check_file(file, images))
            progress(i + 1)
    is_ok = all(c.ok for c in checked)
    if as_json:
        print_json({"ok": is_ok, "files": [asdict(c) | {"ok": c.ok} for c in checked]})
    else:
        print_table(
            ("file", "records", "features", "problem"),
            [(c.file, c.records, ", ".join(f"{n} ×{k}" for n, k in c.features.items()), c.problem)
             for c in checked],
            right=("records",),
        )  # fmt: skip
        note("\nall records are whole" if is_ok else "\ndamaged", "bold green" if is_ok else "red")
    context.exit(0 if is_ok else 1)


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if that is a terminal."""
    console = output(stderr=True)
    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
