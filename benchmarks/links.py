"""Two network namespaces joined by a link of a given rate and delay, as between two machines.

`shaped_link` needs `ip`, `tc` and the right to make namespaces. Where the kernel has netem, that
shapes a veth pair. Where it has not, tbf limits the rate of two TUN devices and a process of its
own carries every packet from one to the other, which it holds for the delay: the TCP of both sides
is the kernel's in either case.
"""

import argparse
import contextlib
import ctypes
import fcntl
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

ADDRESSES = ("10.213.77.1", "10.213.77.2")
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h
_SET_DEVICE = 0x400454CA  # TUNSETIFF of linux/if_tun.h
_TUN_WITHOUT_HEADER = 0x1001  # IFF_TUN | IFF_NO_PI
_LARGEST = 60_000  # bytes of a packet: few large ones leave the processors to the ranks


class LinkRefusedError(Exception):
    """This machine makes no such link; the text is what refused it."""


@dataclass(frozen=True)
class Link:
    """Two namespaces, each with one device; `how` says what shapes the link between them."""

    spaces: tuple[str, str]
    device: str
    how: str

    def command(self, side: int, command: Sequence[str]) -> list[str]:
        """The command as one that runs on a side."""
        return ["ip", "netns", "exec", self.spaces[side], *command]


@contextmanager
def shaped_link(mbit: int, delay_ms: float) -> Iterator[Link]:
    """A link of `mbit` Mbit/s and `delay_ms` milliseconds in each direction, while inside.

    Raises `LinkRefusedError`.
    """
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise LinkRefusedError(f"there is no {tool} here: it is in the package iproute2")
    name = f"f2o{os.getpid()}"
    spaces = (f"{name}a", f"{name}b")
    with contextlib.ExitStack() as stack:
        for space in spaces:
            _run("ip", "netns", "add", space)
            stack.callback(_run, "ip", "netns", "del", space)
        try:
            how = _by_netem(spaces, name, mbit, delay_ms)
        except LinkRefusedError as error:
            wire = _by_hand(spaces, name, mbit, delay_ms)
            stack.callback(_end, wire)
            how = f"tbf on TUN devices, delayed by a process: {error}"
        yield Link(spaces, name, how)


def _by_netem(spaces: tuple[str, str], name: str, mbit: int, delay_ms: float) -> str:
    """A veth pair, each end shaped by netem."""
    shape = ["netem", "rate", f"{mbit}mbit", "delay", f"{delay_ms}ms", "limit", "20000"]
    ends = (name, f"{name}p")
    _run("ip", "link", "add", ends[0], "netns", spaces[0],
         "type", "veth", "peer", "name", ends[1], "netns", spaces[1])  # fmt: skip
    _within(spaces[1], "ip", "link", "set", ends[1], "name", name)
    try:
        for side, space in enumerate(spaces):
            _within(space, "tc", "qdisc", "add", "dev", name, "root", *shape)
            _raise_device(space, name, side)
    except LinkRefusedError:
        _within(spaces[0], "ip", "link", "del", name)
        raise
    return "netem on a veth pair"


def _by_hand(
    spaces: tuple[str, str], name: str, mbit: int, delay_ms: float
) -> subprocess.Popen[str]:
    """The process that carries packets between two TUN devices, once they are up."""
    wire = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.links", *spaces, name, "--delay-ms", str(delay_ms)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert wire.stdout is not None, "the wire was started with a pipe"
        if wire.stdout.readline().strip() != "open":
            raise LinkRefusedError("/dev/net/tun cannot be opened")
        burst = 2 * _LARGEST + mbit * 1000 // 8  # a packet, and what a millisecond carries
        for side, space in enumerate(spaces):
            _raise_device(space, name, side, "mtu", str(_LARGEST))
            _within(space, "tc", "qdisc", "add", "dev", name, "root", "tbf",
                    "rate", f"{mbit}mbit", "burst", str(burst), "latency", "200ms")  # fmt: skip
    except LinkRefusedError:
        _end(wire)
        raise
    return wire


def _raise_device(space: str, name: str, side: int, *more: str) -> None:
    """Give a device its address, and let it and the loopback carry packets."""
    _within(space, "ip", "address", "add", f"{ADDRESSES[side]}/24", "dev", name)
    _within(space, "ip", "link", "set", name, "up", *more)
    _within(space, "ip", "link", "set", "lo", "up")


def _within(space: str, *command: str) -> None:
    _run("ip", "netns", "exec", space, *command)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
        raise LinkRefusedError(f"`{' '.join(command)}`: {said}")


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


# --- the process between two TUN devices ----------------------------------------------------------


def _device(space: str, name: str) -> int:
    """The descriptor of a new TUN device in a namespace."""
    library = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{space}", "rb") as place:
        if library.setns(place.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"setns to {space}")
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _SET_DEVICE, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
    return descriptor


def carry(devices: tuple[int, int], delay: float) -> None:
    """Write each packet to the other device `delay` seconds after it was read; never returns."""
    waiting: tuple[deque[tuple[float, bytes]], ...] = (deque(), deque())  # by where they go
    while True:
        due = min((queue[0][0] for queue in waiting if queue), default=None)
        pause = None if due is None else max(due - time.monotonic(), 0)
        ready, _, _ = select.select(devices, (), (), pause)
        for device in ready:
            other = 1 - devices.index(device)
            with contextlib.suppress(BlockingIOError):
                while packet := os.read(device, 1 << 16):
                    waiting[other].append((time.monotonic() + delay, packet))
        now = time.monotonic()
        for device, queue in zip(devices, waiting, strict=True):
            while queue and queue[0][0] <= now:
                with contextlib.suppress(OSError):  # a device that is down takes none
                    os.write(device, queue.popleft()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spaces", nargs=2)
    parser.add_argument("device")
    parser.add_argument("--delay-ms", type=float, required=True)
    args = parser.parse_args()
    with contextlib.suppress(PermissionError):
        os.nice(-10)  # a wire does not wait for processors
    first, second = (_device(space, args.device) for space in args.spaces)
    print("open", flush=True)
    carry((first, second), args.delay_ms / 1000)


if __name__ == "__main__":
    main()
