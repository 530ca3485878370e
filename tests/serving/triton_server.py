"""The real Triton server, from the wheel that carries it, serving a repository as it is.

`make triton` installs the wheel into an environment of its own: it pins numpy below 2. The wheel
has no ONNX backend; `triton_backends` has one of the same name that is written in Python.
"""

import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import onnxruntime

ENVIRONMENT = Path(__file__).parents[2] / ".venv" / "triton"
BACKENDS = Path(__file__).parent / "triton_backends"
_ATTEMPTS = 3  # to get ports that nobody takes in between
# where the wheel is, which Python its stub has to be for, and whether that can be loaded
_PROBE = """
import ctypes, importlib.metadata, importlib.util, os, sysconfig
name, folder = sysconfig.get_config_vars("INSTSONAME", "LIBDIR")
path = os.path.join(folder, name)
try:
    ctypes.CDLL(path if os.path.exists(path) else name)
except OSError:
    name = ""
found = importlib.util.find_spec("pytriton")
print(os.path.dirname(found.origin) if found else "", folder, name,
      sysconfig.get_python_version(), importlib.metadata.version("onnxruntime"), sep="\\n")
"""


@dataclass(frozen=True)
class Installation:
    """Where the parts of the server are; `lack` says why there is none to be used."""

    lack: str = ""
    wheel: Path = Path()
    libraries: tuple[Path, ...] = ()
    stub: Path = Path()


@functools.cache
def installation() -> Installation:
    """The server in the environment, or what is missing of it."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        return Installation("the real Triton is not installed: run `make triton`")
    done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=True)
    package, folder, library, version, runtime = done.stdout.splitlines()
    if runtime != onnxruntime.__version__:
        return Installation(f"Triton's environment has onnxruntime {runtime}, this one has "
                            f"{onnxruntime.__version__}: run `make triton`")  # fmt: skip
    if not library:
        return Installation(f"Triton needs Python {version} as a shared library (libpython3)")
    wheel = Path(package) / "tritonserver"
    stub = wheel / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        return Installation(f"the real Triton has no stub for Python {version}")
    libraries = (wheel.parents[1] / "nvidia_pytriton.libs", Path(folder))
    return Installation("", wheel, libraries, stub)


class Triton:
    """A tritonserver on two free ports of this machine; a context that ends with it.

    `explicit` models are loaded at the start and others when a client asks; None loads all there
    are. `threads`: those of each session, 0 for the runtime's choice.
    """

    def __init__(
        self, repository: Path, *, explicit: list[str] | None = None, threads: int = 0
    ) -> None:
        self._repository, self._explicit, self._threads = repository, explicit, threads
        self._folder = tempfile.TemporaryDirectory(prefix="triton-")
        self._log = Path(self._folder.name, "log")
        self.http = self.grpc = ""
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self._place_backends()
        for attempt in range(1, _ATTEMPTS + 1):
            if self._start():
                return self
            if "already in use" not in self.log() or attempt == _ATTEMPTS:
                break
        text = self.log()
        self._folder.cleanup()
        raise RuntimeError(f"tritonserver did not become ready:\n{text}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> int:
        """End the server; its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def log(self) -> str:
        """The server's log so far."""
        return self._log.read_text(errors="replace")

    def _place_backends(self) -> None:
        """Copy the wheel's Python backend, the stub of our Python and our backend together.

        Links would not do: the server wants the files themselves to lie in the folder.
        """
        found = installation()
        assert not found.lack, found.lack
        backends = Path(self._folder.name, "backends")
        shutil.copytree(BACKENDS, backends)
        python = shutil.copytree(found.wheel / "backends" / "python", backends / "python")
        shutil.copy(found.stub, python)

    def _start(self) -> bool:
        found = installation()
        ports = _free_ports(2)
        self.http, self.grpc = (f"127.0.0.1:{port}" for port in ports)
        control = ["none"] if self._explicit is None else ["explicit"]
        command = [
            found.wheel / "bin" / "tritonserver",
            f"--model-repository={self._repository}",
            f"--backend-directory={self._folder.name}/backends",
            f"--backend-config=python,shm-region-prefix-name=flow2onnx-{os.getpid()}-{ports[0]}",
            "--http-address=127.0.0.1", f"--http-port={ports[0]}",
            "--grpc-address=127.0.0.1", f"--grpc-port={ports[1]}",
            "--allow-metrics=false", "--disable-auto-complete-config",
            "--exit-timeout-secs=10", *(f"--model-control-mode={word}" for word in control),
            *(f"--load-model={name}" for name in self._explicit or ()),
        ]  # fmt: skip
        libraries = [*map(str, found.libraries), os.environ.get("LD_LIBRARY_PATH", "")]
        programs = [str(ENVIRONMENT / "bin"), os.environ.get("PATH", "")]
        environment = dict(
            os.environ,
            LD_LIBRARY_PATH=os.pathsep.join(filter(None, libraries)),
            PATH=os.pathsep.join(programs),
            ONNX_THREADS=str(self._threads),
        )
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):  # those of another environment
            environment.pop(name, None)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), env=environment, stdout=log, stderr=log
            )
        return self._becomes_ready()

    def _becomes_ready(self) -> bool:
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://{self.http}/v2/health/ready", timeout=5):
                    return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        if self.process.poll() is None:
            self.stop()
        return False


def _free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


if __name__ == "__main__":  # serve a repository until the process is told to end
    with Triton(Path(sys.argv[1]).resolve()) as running:
        print(f"http {running.http}, grpc {running.grpc}", flush=True)
        running.process.wait()
