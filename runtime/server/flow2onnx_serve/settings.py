"""The settings of a server."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from flow2onnx_runtime import Options, OptionsError
from flow2onnx_runtime.options import Model

__all__ = ["Prepare", "Settings"]

Prepare = Callable[[Path, Options], tuple[Model, Options]]


@dataclass(frozen=True)
class Settings:
    """How a server listens, batches, limits and reloads; times are in seconds, sizes in bytes.

    `models` is a repository, REPO/MODEL/VERSION/model.onnx, one .onnx file, or a language model's
    folder; a repository without models is an error unless the server `waits` for some. Adapters are
    in a folder ``adapters`` of a model; those of one model also where `adapters` says. `max_batch`,
    `delay` and `max_queue` hold for models whose config.pbtxt does not say otherwise. `threads`:
    that a run may use, None for one per core that this process may use; with `shared_threads` in
    `options` all models have them together. `prepare` tells what to open in the place of a model's
    file, and how, as an `Accelerator` does. `max_held` limits the memory of all unfinished
    requests together, None for 16 times `max_body`; `max_connections` those of each protocol. A
    request over HTTP names an address, a host without a dot or one of `allowed_hosts`; pages of
    other sites may send none but those of `allowed_origins`. `poll`: how often the repository is
    looked at; 0 for never.
    Told to end, a server answers for `linger` more, is not ready meanwhile and asks its clients to
    connect elsewhere; then it finishes what it has, for at most `drain`.
    """

    models: Path
    waits: bool = False
    adapters: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    options: Options = Options()  # noqa: RUF009 - a frozen value
    threads: int | None = None
    prepare: Prepare | None = None
    max_batch: int = 32
    delay: float = 0.0
    max_queue: int = 256
    timeout: float = 30.0
    read_timeout: float = 10.0
    max_body: int = 64 << 20
    max_held: int | None = None
    max_connections: int = 2048
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    poll: float = 5.0
    linger: float = 1.0
    drain: float = 30.0
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise OptionsError(f"{name} is {value}", hint="give a number of seconds")
        for name in ("max_batch", "max_queue", "timeout", "read_timeout", "max_body",
                     "max_connections"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise OptionsError(
                    f"{name} is {getattr(self, name)}", hint="give a number above zero"
                )
        if self.held < 4 * self.max_body:
            raise OptionsError(f"max_held is {self.held}, max_body {self.max_body}",
                               hint="hold four of the largest requests at least")  # fmt: skip
        if (self.certificate is None) != (self.key is None):
            raise OptionsError(
                "TLS needs a certificate and its key, one of them is missing",
                hint="give both files, or neither",
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()
                                           and self.token.strip() == self.token != ""):  # fmt: skip
            raise OptionsError("the token is empty or not plain text", hint="use letters, digits")

    @property
    def held(self) -> int:
        """How many bytes all unfinished requests together may hold."""
        return 16 * self.max_body if self.max_held is None else self.max_held

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the server."""
        return self.host in ("127.0.0.1", "::1", "localhost")

    @property
    def thread_count(self) -> int:
        """How many threads a run may use; the runtime alone would count the machine's cores."""
        return self.core_count if self.threads is None else self.threads

    @property
    def core_count(self) -> int:
        """How many cores this process may use."""
        affinity = getattr(os, "sched_getaffinity", None)  # Linux only
        return len(affinity(0)) if affinity else os.cpu_count() or 1

    @property
    def session_options(self) -> Options:
        """How models are opened: threads that wait for work must not keep the cores busy."""
        if self.options.shared_threads:
            return self.options
        entries = {"session.intra_op.allow_spinning": "0", **self.options.session_entries}
        return replace(self.options, intra_op_threads=self.thread_count, session_entries=entries)
