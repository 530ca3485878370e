"""A server's life: models loaded, requests answered, repository watched, drained at the end."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import onnxruntime as ort
import uvicorn
from flow2onnx_runtime import FlowError, OptionsError, require_providers
from flow2onnx_runtime.allocator import prepare_allocator

from flow2onnx_serve.connections import Door, limit_connections, limit_handshakes
from flow2onnx_serve.grpc import start_grpc
from flow2onnx_serve.http import Application
from flow2onnx_serve.scanning import single_model
from flow2onnx_serve.service import Service
from flow2onnx_serve.settings import Settings
from flow2onnx_serve.threads import is_at_work

__all__ = ["run"]

_log = logging.getLogger("flow2onnx_serve")

_FILES = 256  # that are open besides connections
_KEEP_ALIVE = 75  # seconds without a request after which a connection ends


def run(settings: Settings, version: str) -> None:
    """Answer requests until SIGTERM or SIGINT; raises `FlowError` if it cannot begin."""
    require_providers(settings.options)
    prepare_allocator()
    _allow_descriptors(2 * settings.max_connections + _FILES)
    _share_threads(settings)
    _check_certificate(settings)
    service = Service(settings, version)
    config = _config(service)
    make = config.get_loop_factory() or asyncio.new_event_loop
    make = limit_handshakes(make, settings.read_timeout)
    with _listener(settings) as listener, asyncio.Runner(loop_factory=make) as runner:
        runner.run(_serve(service, _Server(config), listener))
    if is_at_work():  # a model being loaded, which nothing can stop and nobody waits for
        logging.shutdown()
        os._exit(0)


class _Server(uvicorn.Server):
    """uvicorn's, which leaves the signals to us: they are to drain gRPC too."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _check_certificate(settings: Settings) -> None:
    """Raise `OptionsError` for a certificate and a key that cannot be used."""
    if settings.certificate is None or settings.key is None:
        return
    try:
        # a password would be asked for on the terminal, for which nobody waits
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.certificate, settings.key, password=""
        )
    except (OSError, ValueError) as error:
        raise OptionsError(
            f"TLS cannot use {settings.certificate} with {settings.key}: {error}",
            hint="give a certificate in PEM and its key, without a password",
        ) from error


def _allow_descriptors(count: int) -> None:
    """Let this process open so many files and connections, as far as the system lets it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_enough = hard == resource.RLIM_INFINITY or hard >= count
    if not is_enough:
        _log.warning("the system allows fewer open files than --max-connections may take",
                     extra={"allowed": hard, "wanted": count})  # fmt: skip
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count if is_enough else hard, hard))


def _share_threads(settings: Settings) -> None:
    """One pool of threads for the runs of all models of this process."""
    if settings.options.shared_threads:
        ort.set_global_thread_pool_sizes(settings.thread_count, 1)


def _config(service: Service) -> uvicorn.Config:
    settings = service.settings
    config = uvicorn.Config(
        Application(service),
        http="httptools",
        ws="none",
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        log_level="error",  # not each line that is no HTTP: /metrics counts them
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(settings.drain)),
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    count = partial(service.metrics.answered, "http")
    limit_connections(config, Door(settings.max_connections, settings.read_timeout, count))
    return config


@contextlib.contextmanager
def _listener(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=1024)
    except OSError as error:
        raise OptionsError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}",
            hint="choose another --port or --host",
        ) from error
    with listener:
        yield listener


async def _serve(service: Service, server: uvicorn.Server, listener: socket.socket) -> None:
    settings, repository = service.settings, service.repository
    await repository.refresh(at_once=True)
    _check_start(service)
    stop = asyncio.Event()
    _on_signals(stop.set)
    async with _grpc(service) as grpc_address:
        host, port = listener.getsockname()[:2]
        _log.info("listening", extra={
            "http": f"{host}:{port}", "grpc": grpc_address, "models": repository.names(),
            "tls": settings.certificate is not None, "token": settings.token is not None,
        })  # fmt: skip
        if not settings.is_loopback and settings.token is None:
            _log.warning("anyone who reaches this machine may use the models: no token is asked")
        polling = asyncio.create_task(_poll(service))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        await _drain(service, server, serving)
        for task in (polling, stopping):
            task.cancel()
    service.close()
    _log.info("ended")


def _check_start(service: Service) -> None:
    """Raise `FlowError` for one file that cannot be served; a repository may get better."""
    repository, settings = service.repository, service.settings
    _check_adapters(settings)
    if single_model(settings.models) is not None and not repository.is_ready:
        raise FlowError(f"{settings.models}: {repository.index()[0]['reason']}")
    if not repository.names() and not settings.waits:
        raise FlowError(
            f"{settings.models} {_mistake(settings.models)}",
            hint="give a folder with MODEL/VERSION/model.onnx, an .onnx file, a language model's "
            "folder, or --wait for models",
        )
    if not repository.index(only_ready=True):
        _log.warning("no model is ready", extra={"repository": str(settings.models)})


def _check_adapters(settings: Settings) -> None:
    """Raise `OptionsError` for a folder of adapters that is none, or is for many models."""
    if settings.adapters is None:
        return
    if single_model(settings.models) is None:
        raise OptionsError(
            "adapters are of one model, and this is a repository",
            hint="put them into REPO/MODEL/adapters/NAME.onnx_adapter",
        )
    if not settings.adapters.is_dir():
        raise OptionsError(f"{settings.adapters} is no folder", hint="make it first, empty or not")


def _mistake(folder: Path) -> str:
    """The error for a folder without models."""
    if (folder / "manifest.json").exists():
        return "is a bundle, not a repository"
    if any(path.name.isdecimal() and path.is_dir() for path in folder.iterdir()):
        return f"is one model of a repository, which is the folder around it: {folder.parent}"
    return "has no models"


def _on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C interrupts the loop
            loop.add_signal_handler(number, stop)


@contextlib.asynccontextmanager
async def _grpc(service: Service) -> AsyncIterator[str | None]:
    """gRPC beside HTTP, if it is wanted: yields its address or None."""
    if service.settings.grpc_port is None:
        yield None
        return
    server = await start_grpc(service)
    try:
        yield server.address
    finally:
        await server.stop(service.settings.drain)


async def _poll(service: Service) -> None:
    while service.settings.poll:
        await asyncio.sleep(service.settings.poll)
        try:
            await service.repository.refresh()
        except FlowError as error:
            _log.error("the repository cannot be read", extra={"reason": error.message})
        except Exception:
            _log.exception("looking at the repository failed")


async def _drain(service: Service, server: uvicorn.Server, serving: "asyncio.Task[None]") -> None:
    """Be not ready for a while, then accept nothing new, and finish what there is."""
    service.is_draining = True
    _log.info("draining")
    if not serving.done():
        await asyncio.sleep(service.settings.linger)
    server.should_exit = True
    await serving
