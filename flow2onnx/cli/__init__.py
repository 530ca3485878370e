"""The command line: `flow2onnx run`, `export`, `info`, `verify`, `doctor`, `flags`."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    try:
        from flow2onnx.cli.app import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("click", "rich"):
            raise
        sys.exit(
            f"flow2onnx: the command line needs click and rich; {missing} is not installed\n"
            "  pip install 'flow2onnx[cli]'"
        )
    app(prog_name="flow2onnx")
