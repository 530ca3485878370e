"""NVIDIA's own compiler for kernel texts, which needs no GPU.

``python -m tests.gpu.nvrtc LIBRARY FOLDER`` compiles the texts in a folder for every architecture.
LIBRARY is the path of libnvrtc.so.13, which shares no process with the stand-in of that name.
"""

import ctypes
import sys
from pathlib import Path

__all__ = ["ARCHITECTURES", "Nvrtc", "main"]

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")
ELF = b"\x7fELF"
OPTIONS = ("--fmad=false", "--std=c++17")  # as the library gives them


class Nvrtc:
    """The compiler in a shared library."""

    def __init__(self, library: Path) -> None:
        for builtins in library.parent.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(library))

    def compile(self, source: str, architecture: str) -> bytes:
        """The cubin of a text; `AssertionError` with the compiler's words where there is none."""
        program = ctypes.c_void_p()
        asked = (f"--gpu-architecture={architecture}", *OPTIONS)
        options = (ctypes.c_char_p * len(asked))(*(o.encode() for o in asked))
        self._call("CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, 0, 0)
        code = self._library.nvrtcCompileProgram(program, len(asked), options)
        assert code == 0, self._text(program, "ProgramLog").decode()
        cubin = self._text(program, "CUBIN")
        self._call("DestroyProgram", ctypes.byref(program))
        return cubin

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, text)
        return text.raw

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, f"nvrtc{name}")(*arguments)
        assert code == 0, f"nvrtc{name}: error {code}"


def main() -> int:
    """Compile every kernel-*.cu of a folder for every architecture; 1 if one does not compile."""
    compiler, folder = Nvrtc(Path(sys.argv[1])), Path(sys.argv[2])
    for path in sorted(folder.glob("kernel-*.cu")):
        for architecture in ARCHITECTURES:
            cubin = compiler.compile(path.read_text(), architecture)
            print(f"{path.name} {architecture}: {len(cubin)} bytes")
            assert cubin.startswith(ELF), f"{path} becomes no cubin"
    return 0


if __name__ == "__main__":
    sys.exit(main())
