"""The other CUDA libraries of the stand-in: functions that succeed and do nothing, in C.

Which ones are needed, the provider's library tells: what it imports of cuBLAS, and the names of
cuDNN's functions that it looks up itself.
"""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

__all__ = ["cuda_sources", "tensorrt_sources"]

_HEAD = """#include <stdint.h>
#include <stdlib.h>
#include <string.h>
int standin_launch(const char*);
"""

# Those that do work on the device.
_WORK = re.compile(
    r"gemm|Gemm|geam|getr|scal|copy|Matmul$|MatrixTransform$"
    r"|^cudnn\w*(Forward|BackwardData|ForwardInference|ReduceTensor|AddTensor|BackendExecute)$"
)
# Those that make something whose address they give back by their first argument.
_MAKES = re.compile(r"^cudnnCreate\w*$|^cublasCreate_v2$|^cublasLt\w*Create$")

_TENSORRT = re.compile(r"create\w+_INTERNAL|get(Infer|Nv|Plugin)\w+|initLibNv\w+")

# Bodies that are none of these: what the caller reads back must mean something.
_BODIES = {
    "cublasGetStatusName": 'const char* cublasGetStatusName(int s) { return "status"; }',
    "cublasGetStatusString": 'const char* cublasGetStatusString(int s) { return "status"; }',
    "cublasGetMathMode": "int cublasGetMathMode(void* h, int* mode) { *mode = 0; return 0; }",
    "cublasLtMatmulAlgoGetHeuristic": (
        "int cublasLtMatmulAlgoGetHeuristic(void* h, void* d, void* a, void* b, void* c, void* e,"
        " void* p, int asked, void* results, int* count)"
        " { memset(results, 0, 64); *count = 1; return 0; }"
    ),
    "cudnnGetVersion": "size_t cudnnGetVersion(void) { return 91900; }",
    "cudnnGetErrorString": 'const char* cudnnGetErrorString(int s) { return "status"; }',
    "cudnnGetLastErrorString": (
        "void cudnnGetLastErrorString(char* text, size_t n) { if (n) *text = 0; }"
    ),
    "cudnnGetStream": "int cudnnGetStream(void* h, void** s) { *s = NULL; return 0; }",
    "cudnnGetReductionWorkspaceSize": (
        "int cudnnGetReductionWorkspaceSize(void* h, void* r, void* a, void* c, size_t* bytes)"
        " { *bytes = 1024; return 0; }"
    ),
    "cudnnGetReductionIndicesSize": (
        "int cudnnGetReductionIndicesSize(void* h, void* r, void* a, void* c, size_t* bytes)"
        " { *bytes = 1024; return 0; }"
    ),
    "cudnnBackendCreateDescriptor": (
        "int cudnnBackendCreateDescriptor(int type, void** made) { *made = malloc(64); return 0; }"
    ),
    # One element of every attribute, zero where it is a number, and no engine notes (types 11, 19).
    "cudnnBackendGetAttribute": """\
int cudnnBackendGetAttribute(void* d, int name, int type, int64_t asked, int64_t* count, void* to) {
  int64_t found = type == 11 || type == 19 ? 0 : 1;
  if (to != NULL && asked > 0) {
    if (type == 3) *(int64_t*)to = 0;
    if (type == 2) *(char*)to = 0;
    if (type == 1 || type == 9 || type == 23) *(int*)to = 0;
  }
  if (count != NULL) *count = found;
  return 0;
}""",
}


def _source(names: Iterable[str]) -> str:
    return _HEAD + "\n".join(_function(name) for name in sorted(names)) + "\n"


def _function(name: str) -> str:
    if name in _BODIES:
        return _BODIES[name]
    if _MAKES.match(name):
        return f"int {name}(void** made) {{ *made = malloc(64); return 0; }}"
    if _WORK.search(name):
        return f'int {name}() {{ return standin_launch("{name}"); }}'
    return f"int {name}() {{ return 0; }}"


def _imported_names(library: Path) -> list[str]:
    """The symbols that a shared library takes from others."""
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", "-j", str(library)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [line.partition("@")[0] for line in listed.stdout.split()]


def _looked_up_names(library: Path) -> list[str]:
    """The functions of cuDNN that a shared library has the names of."""
    found = re.findall(rb"\0(cudnn[A-Z]\w*)(?=\0)", library.read_bytes())
    return sorted({name.decode() for name in found})


def cuda_sources(provider: Path) -> dict[str, str]:
    """The C source of each library that the CUDA provider opens, by the library's name."""
    imported = _imported_names(provider)
    parts = {
        "libcublasLt.so.13": [n for n in imported if n.startswith("cublasLt")],
        "libcublas.so.13": [n for n in imported if re.match("cublas(?!Lt)", n)],
        "libcudnn.so.9": _looked_up_names(provider),
        "libcurand.so.10": [n for n in imported if n.startswith("curand")],
    }
    return {library: _source(names) for library, names in parts.items()}


# What TensorRT's functions give: an object of whatever class is asked for, all of whose virtual
# methods do nothing and give 0. So the provider opens and reads its options; it builds no engine.
_TENSORRT_HEAD = """#define TWICE(x) x, x
static long nothing(void) { return 0; }
static void* const methods[256] = {
  TWICE(TWICE(TWICE(TWICE(TWICE(TWICE(TWICE(TWICE(nothing))))))))
};
static struct { void* const* methods; void* fields[15]; } object = { methods };
"""


def tensorrt_sources(provider: Path) -> dict[str, str]:
    """The same of TensorRT: enough for a session without a node of its own."""
    names = [n for n in _imported_names(provider) if _TENSORRT.match(n)]
    functions = (
        f"int {name}(void) {{ return 101300; }}"
        if name == "getInferLibVersion"
        else f"void* {name}() {{ return &object; }}"
        for name in sorted(names)
    )
    text = _TENSORRT_HEAD + "\n".join(functions) + "\n"
    return {"libnvinfer.so.10": text, "libnvonnxparser.so.10": text}
