"""Write the description of the C API and all that is generated from it.

`python -m runtime.bindings` in the repository's root writes them; `--check` says which are stale
and ends with 1.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from runtime.bindings import cpp, csharp, go, java, rust
from runtime.bindings.c_api import ROOT, Api, read

__all__ = ["FILES", "main", "stale"]


def description(api: Api) -> str:
    """The declarations of the header, as JSON for whoever writes a binding elsewhere."""
    return json.dumps(api.as_json(), indent=1, ensure_ascii=False) + "\n"


# Each generated file with what writes it: a binding adds one row.
FILES: dict[str, Callable[[Api], str]] = {
    "runtime/bindings/c_api.json": description,
    "runtime/cpp/include/flow2onnx.hpp": cpp.header,
    "runtime/csharp/Flow2Onnx/Native.cs": csharp.natives,
    "runtime/go/codes.go": go.codes,
    "runtime/java/src/main/c/native.c": java.stubs,
    "runtime/java/src/main/java/flow2onnx/Native.java": java.natives,
    "runtime/rust/src/codes.rs": rust.codes,
    "runtime/rust/src/ffi/raw.rs": rust.raw,
}


def stale(api: Api) -> dict[Path, str]:
    """The files that do not hold what is generated now, with that."""
    texts = {ROOT / name: write(api) for name, write in FILES.items()}
    return {
        path: text
        for path, text in texts.items()
        if not path.exists() or path.read_text("utf-8") != text
    }


def main() -> int:
    """Write what is stale, or say it."""
    parser = argparse.ArgumentParser(prog="python -m runtime.bindings", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if any is stale")
    check = parser.parse_args().check
    found = stale(read())
    for path, text in found.items():
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
