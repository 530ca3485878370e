"""Write the kernels of this environment's onnxruntime-gpu, for where it cannot be asked.

    LD_LIBRARY_PATH=FOLDER:FOLDER/tensorrt python -m tests.gpu.record_kernels

FOLDER is that of `tests.gpu.standin.build`: with TensorRT's libraries missing, the question would
crash the process.
"""

from pathlib import Path

import flow2onnx_runtime
import onnxruntime as ort
from flow2onnx_runtime.kernel_definitions import as_text, file_name, installed_definitions

from tests.gpu import standin


def main() -> None:
    """Write the file into the package that reads it."""
    if not standin.is_loaded():
        raise SystemExit("the stand-in is not in LD_LIBRARY_PATH")
    path = Path(flow2onnx_runtime.__path__[0]) / file_name(ort.__version__)
    path.write_text(as_text(installed_definitions()), encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
