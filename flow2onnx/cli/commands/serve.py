"""`flow2onnx serve`: models behind the Open Inference Protocol."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from flow2onnx_runtime.providers import find_provider

from flow2onnx import __version__
from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import provider_option
from flow2onnx.errors import ConfigError

__all__ = ["serve"]

_PACKAGES = {"starlette": "serve", "uvicorn": "serve", "httptools": "serve",
             "prometheus_client": "serve", "hpack": "grpc"}  # fmt: skip


@click.command(epilog="""\b
Examples:
  flow2onnx serve mlp.onnx
  flow2onnx serve models/ --grpc-port 8001 --max-batch 64 --delay-ms 2
  flow2onnx serve models/ --host 0.0.0.0 --token-file token --tls-cert c.pem --tls-key k.pem
  curl -s localhost:8000/v2/models/mlp""")  # fmt: skip
@click.argument("models", metavar="REPO|MODEL.ONNX", type=click.Path(exists=True, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, help="For HTTP; 0 for any.")
@click.option("--grpc-port", type=int, help="For gRPC, which needs the extra grpc; 0 for any.")
@provider_option("Where the models run; one that cannot be used is an error.", "cpu")
@click.option(
    "--threads", type=click.IntRange(1), help="That a run may use; one per core by default."
)
@click.option(
    "--shared-pool", is_flag=True,
    help="One pool of threads for all models; without, quick models have none, others their own.",
)  # fmt: skip
@click.option(
    "--native", is_flag=True,
    help="Compute convolutions by the operators of flow2onnx-native, which must be installed.",
)  # fmt: skip
@click.option(
    "--max-batch", type=click.IntRange(1), default=32, show_default=True,
    help="Rows of requests computed together where config.pbtxt says nothing; 1 for never.",
)  # fmt: skip
@click.option(
    "--delay-ms", type=click.FloatRange(0), default=0.0, show_default=True,
    help="How long a request waits for others where config.pbtxt says nothing.",
)  # fmt: skip
@click.option(
    "--queue", type=click.IntRange(1), default=256, show_default=True,
    help="Requests of a model that may wait; more are answered 503.",
)  # fmt: skip
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=30.0,
              show_default=True, help="Seconds that a request may take.")  # fmt: skip
@click.option("--read-timeout", type=click.FloatRange(0, min_open=True), default=10.0,
              show_default=True, help="Seconds that a client may take to send it.")  # fmt: skip
@click.option("--max-body", type=click.IntRange(1), default=64 << 20, show_default=True,
              help="Bytes of a request.")  # fmt: skip
@click.option("--poll", type=click.FloatRange(0), default=5.0, show_default=True,
              help="Seconds between looks at the repository; 0 for none.")  # fmt: skip
@click.option("--linger", type=click.FloatRange(0), default=1.0, show_default=True,
              help="Seconds after SIGTERM to answer on while not ready.")  # fmt: skip
@click.option("--drain", type=click.FloatRange(0), default=30.0, show_default=True,
              help="Seconds after that to finish what there is.")  # fmt: skip
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Clients must send the token in this file.")  # fmt: skip
@click.option("--tls-cert", "certificate", help="A certificate in PEM, for TLS.",
              type=click.Path(exists=True, dir_okay=False, path_type=Path))  # fmt: skip
@click.option("--tls-key", "key", help="Its key.",
              type=click.Path(exists=True, dir_okay=False, path_type=Path))  # fmt: skip
@traceback_option
def serve(
    models: Path,
    token_file: Path | None,
    provider: str,
    shared_pool: bool,
    native: bool,
    **options: Any,
) -> None:
    """Answer inference requests (Open Inference Protocol v2, as Triton and KServe speak it).

    A repository is REPO/MODEL/VERSION/model.onnx, with config.pbtxt if you like. New versions are
    taken up while the server runs, once they have loaded, warmed up and passed their check; logs
    are JSON on stderr. SIGTERM lets it finish what it has.
    """
    try:
        from flow2onnx_runtime import Options

        from flow2onnx.server.logs import log_as_json
        from flow2onnx.server.running import serve as run
        from flow2onnx.server.settings import Settings

        if options["grpc_port"] is not None:
            import hpack  # noqa: F401 - to tell at once that it is missing
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        extra = _PACKAGES[package]
        raise ConfigError(f"serving needs {package}, which is not installed",
                          hint=f"pip install 'flow2onnx[{extra}]'") from None  # fmt: skip
    token = None if token_file is None else token_file.read_text("utf-8").strip()
    settings = Settings(
        models=models,
        options=Options(providers=find_provider(provider).names, shared_threads=shared_pool),
        max_queue=options.pop("queue"),
        delay=options.pop("delay_ms") / 1000,
        token=token,
        prepare=_native(provider) if native else None,
        **options,
    )
    log_as_json()
    run(settings, __version__)
    sys.exit(0)


def _native(provider: str) -> Callable[..., Any]:
    """What accelerates models; tells at the start, not for each of them, that nothing does."""
    from flow2onnx.engine.acceleration import accelerate
    from flow2onnx.engine.native import native_library

    if provider != "cpu":
        raise click.UsageError(f"--native is for --provider cpu, not {provider}")
    native_library(True)
    return accelerate
