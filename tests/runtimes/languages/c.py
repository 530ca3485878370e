"""C itself, which the others are compared with."""

from pathlib import Path

from tests.runtimes.c_driver import SOURCE, Command, Driver
from tests.runtimes.languages.language import Language, onnxruntime, run

FLAGS = ["-DFLOW2ONNX_LOAD_ORT", "-O1", "-std=c11"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def _compile(release: Path, folder: Path, *flags: str) -> Command:
    folder.mkdir(exist_ok=True)
    run("cc", *FLAGS, *flags, SOURCE / "tests" / "driver.c", release / "c" / "flow2onnx_runtime.c",
        f"-I{release / 'c'}", "-o", folder / "driver", "-lm", "-ldl")  # fmt: skip
    return Command((folder / "driver",), {"FLOW2ONNX_ORT_LIBRARY": str(onnxruntime())})


def _check(release: Path, folder: Path) -> None:
    """Nothing: test_c_damage.py does all of it with the sanitizers."""
    found = Driver(_compile(release, folder / "sanitized", *SANITIZERS))
    found.close()


LANGUAGE = Language(
    "C",
    ("cc", "make"),
    _compile,
    _check,
    sources=("runtime/c/src/*.c",),
    lacks={
        "a page whose code is run, installed from the release archive": "what is run is the "
        "program in [examples/c](../examples/c/digits.c)"
    },
)
