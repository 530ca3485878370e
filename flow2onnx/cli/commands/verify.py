"""`flow2onnx verify`: whether exported files run, and give what they should."""

import sys
from pathlib import Path

import click
from flow2onnx_runtime.providers import find_provider

from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import details_option, json_option
from flow2onnx.cli.provider_option import check_usable, provider_option
from flow2onnx.cli.reports import print_report
from flow2onnx.cli.show import print_json, working
from flow2onnx.export import verify_model

__all__ = ["verify"]


@click.command(epilog="""\b
Examples:
  flow2onnx verify mlp.onnx
  flow2onnx verify mlp/ --full --json""")  # fmt: skip
@click.argument("path", type=click.Path(path_type=Path))
@provider_option("Where to run the model.", "cpu")
@click.option("--full", is_flag=True, help="Compare every output, however long that takes.")
@details_option
@json_option
@traceback_option
def verify(path: Path, provider: str, full: bool, details: bool, as_json: bool) -> None:
    """Check a model or a bundle, and compare the runtime with ONNX's reference.

    The exit code is 1 if anything fails.
    """
    check_usable(provider)
    with working(f"Verifying {path}"):
        report = verify_model(path, provider=find_provider(provider).name, full=full)
    print_json(report.to_dict()) if as_json else print_report(report, details=details)
    sys.exit(0 if report.ok else 1)
