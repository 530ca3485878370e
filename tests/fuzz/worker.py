"""One Python target under Atheris: ``python -m tests.fuzz.worker TARGET [libFuzzer's options]``."""

import logging
import sys
import warnings

import atheris

_INSTRUMENTED = ["flow2onnx", "flow2onnx_runtime", "flow2onnx_serve"]


def main() -> None:
    """Fuzz until libFuzzer ends, which ends the process."""
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=_INSTRUMENTED):
        from tests.fuzz.target import execute, load

        target = load(name)
    warnings.simplefilter("ignore")
    logging.disable()
    atheris.Setup([sys.argv[0], *options], lambda data: execute(target.run, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
