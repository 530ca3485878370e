"""`flow2onnx grad`: derivatives of an ONNX model as an ONNX model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flow2onnx import imported
from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import input_option, json_option, parse_inputs
from flow2onnx.cli.show import heading, note, print_json, print_table, shape_text, working

__all__ = ["grad"]

_MODES = ("grad", "vjp", "jvp", "hvp", "jacobian")


@click.command(
    epilog="""\b
Examples:
  flow2onnx grad model.onnx --wrt image -o gradient.onnx
  flow2onnx grad model.onnx --mode jvp --wrt "*.weight" -o forward.onnx
  flow2onnx grad model.onnx --mode jacobian --of joints --input batch=1 -o jacobian.onnx""",
)  # fmt: skip
@click.argument("model", metavar="MODEL.ONNX", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", "path", required=True, type=click.Path(path_type=Path), metavar="FILE.ONNX",
    help="The model to write.",
)  # fmt: skip
@click.option(
    "--mode", type=click.Choice(_MODES), default="grad", show_default=True,
    help="Gradients, vectors times the Jacobian, the Jacobian times vectors, the Hessian times "
    "vectors, or the whole Jacobian.",
)  # fmt: skip
@click.option(
    "--wrt", multiple=True, metavar="PATTERN",
    help="Inputs and tensors to differentiate in; may be repeated. Default: every real input.",
)  # fmt: skip
@click.option(
    "--of", "outputs", multiple=True, metavar="OUTPUT",
    help="Outputs to differentiate; may be repeated. Default: every real output.",
)  # fmt: skip
@click.option(
    "--seeds", is_flag=True, help="With grad and hvp: weigh outputs by inputs seed/OUTPUT."
)
@input_option
@click.option("--opset", type=int, metavar="N", help="The ONNX opset; the model's own by default.")
@click.option("--only", is_flag=True, help="Leave the model's own outputs out.")
@json_option
@traceback_option
def grad(
    model: Path,
    path: Path,
    mode: str,
    wrt: tuple[str, ...],
    outputs: tuple[str, ...],
    seeds: bool,
    inputs: tuple[str, ...],
    only: bool,
    as_json: bool,
    opset: int | None,
) -> None:
    """Write the derivatives of an ONNX model as an ONNX model of standard operators.

    Inputs and outputs are named after what they belong to: grad/x, vjp/x of cotangent/y, jvp/y of
    tangent/x, hvp/x of tangent/x, jacobian/y/x.
    """
    if seeds and mode not in ("grad", "hvp"):
        raise click.BadParameter(f"--seeds is for grad and hvp, not {mode}")
    options = {"seeds": True} if seeds else {}
    with working(f"Reading {model}"):
        made = getattr(imported, mode)(
            model, list(wrt) or None, outputs=list(outputs) or None, inputs=parse_inputs(inputs),
            keep_outputs=not only, opset=opset, **options,
        )  # fmt: skip
        imported.save_model(made, path)
    rows = imported.signature_of(made)
    if as_json:
        print_json(_plain(mode, path, rows, len(made.graph.node)))
        return
    heading(made.graph.name, f"{mode} in {path}, {len(made.graph.node)} nodes")
    print_table(
        ("", "name", "type", "shape"),
        [(kind, name, dtype, shape_text(shape)) for kind, name, dtype, shape in rows],
    )
    note("")


def _plain(mode: str, path: Path, rows: Sequence[Any], nodes: int) -> dict[str, Any]:
    return {
        "mode": mode,
        "file": str(path),
        "bytes": path.stat().st_size,
        "nodes": nodes,
        **{
            f"{kind}s": [{"name": n, "dtype": t, "shape": s} for k, n, t, s in rows if k == kind]
            for kind in ("input", "output")
        },
    }
