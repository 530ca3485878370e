"""The ranks of one peer, which run blocks of steps together when they are told."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import ROOT, interpreter
from benchmarks.links import ADDRESSES, Link
from benchmarks.worker_process import WorkerProcess

MODES = ("step", "compute", "communicate")


@dataclass(frozen=True)
class RankedPeer:
    """A peer as it takes part; `peer` is what `benchmarks.rank_worker` takes."""

    label: str
    peer: str

    def python(self) -> str | None:
        """The Python of its ranks; None where torch is missing."""
        return interpreter(self.peer)


class RankGroup:
    """The ranks of a peer, each a process on a processor of its own as far as there are some.

    On a `link` rank 0 is on one side and all others are on the other.
    """

    def __init__(self, who: RankedPeer, workload: str, count: int, link: Link | None) -> None:
        self.who, self.count = who, count
        self.times: dict[str, list[float]] = {mode: [] for mode in MODES}
        self.busy: list[float] = []  # seconds of processors that a step took, means over the ranks
        python = who.python()
        assert python is not None, f"{who.label} was found not installed before"
        command = [python, "-m", "benchmarks.rank_worker", who.peer, workload, "--offset"]
        port = str(_free_port())
        self.peak_mb: list[float] = []
        self._workers: list[WorkerProcess] = []
        try:
            for rank in range(count):
                own = _environment(count, rank, port, link)
                line = _on(link, rank, [*command, str(rank)])
                worker = WorkerProcess(line, own, name=f"rank {rank}")
                self._workers.append(worker)
            self.facts = [worker.record() for worker in self._workers]
            self._signal("SIGSTOP")
        except BaseException:
            self.close()
            raise

    @property
    def results(self) -> list[float]:
        """The losses of three steps, means over the ranks."""
        each = [facts["results"] for facts in self.facts]
        return [sum(losses) / self.count for losses in zip(*each, strict=True)]

    def run(self, mode: str, steps: int) -> float:
        """The seconds of so many steps: those of the slowest rank."""
        self._signal("SIGCONT")
        self._tell(f"run {mode} {steps}")
        taken = [worker.numbers(2) for worker in self._workers]
        self._signal("SIGSTOP")
        if mode == "step":
            self.busy.append(sum(busy for _, busy in taken) / self.count / steps)
        return max(wall for wall, _ in taken)

    def end(self) -> None:
        """Ask for the peak memory of each rank, and end all."""
        self._signal("SIGCONT")
        self._tell("end")
        self.peak_mb = [worker.numbers(1)[0] for worker in self._workers]
        self.close()

    def close(self) -> None:
        """End all ranks, whatever they do."""
        for worker in self._workers:
            worker.close()

    def _signal(self, name: str) -> None:
        for worker in self._workers:
            worker.signal(name)

    def _tell(self, text: str) -> None:
        for worker in self._workers:
            worker.tell(text)


def _on(link: Link | None, rank: int, command: Sequence[str]) -> list[str]:
    return list(command) if link is None else link.command(min(rank, 1), command)


def _environment(count: int, rank: int, port: str, link: Link | None) -> Mapping[str, str]:
    """The variables that a launcher sets for a rank; on a link also gloo's device."""
    paths = [str(ROOT), str(ROOT / "runtime" / "python")]
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths += [str(Path(path).resolve()) for path in own if path]
    places = {
        "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
    }  # fmt: skip
    if link is not None:  # between two machines, as it were
        machine = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank),
                   "GROUP_WORLD_SIZE": str(count)}  # fmt: skip
        places |= {"MASTER_ADDR": ADDRESSES[0], "GLOO_SOCKET_IFNAME": link.device, **machine}
    threads = {n: "1" for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    # a driver that stops a group for longer than ranks wait is no fault of theirs
    return {**os.environ, **threads, **places, "FLOW2ONNX_DEADLINE": "3600",
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}  # fmt: skip


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
