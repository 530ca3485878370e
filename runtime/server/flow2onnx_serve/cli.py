"""The command `flow2onnx-serve`, which `flow2onnx serve` is too."""

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from flow2onnx_runtime import FlowError, OptionsError
from flow2onnx_runtime.providers import PROVIDERS, find_provider

from flow2onnx_serve import __version__

if TYPE_CHECKING:
    from flow2onnx_serve.settings import Prepare

__all__ = ["main", "serve"]

_PROVIDERS = [tag for tag, row in PROVIDERS.items() if not row.is_remote]
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_PORT = click.IntRange(0, 65535)
_TRACEBACK = "flow2onnx.traceback"  # where the command line of flow2onnx looks for the wish


def main() -> None:
    """Run the command with the program's arguments, and exit with its code."""
    serve(prog_name="flow2onnx-serve")


class _Command(click.Command):
    """Shows an error as its kind and message, unless a command line around it does."""

    def invoke(self, ctx: click.Context) -> Any:  # what the command returns
        try:
            return super().invoke(ctx)
        except FlowError as error:
            if ctx.parent is not None:
                raise
            if ctx.meta.get(_TRACEBACK):
                traceback.print_exception(error)
            else:
                click.echo(f"{type(error).__name__}: {error}", err=True)
            ctx.exit(1)


def _keep_traceback(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[_TRACEBACK] = value


@click.command(cls=_Command, context_settings=_CONTEXT, epilog="""\b
Examples:
  flow2onnx-serve mlp.onnx
  flow2onnx-serve models/ --grpc-port 8001 --max-batch 64 --delay-ms 2
  flow2onnx-serve models/ --host 0.0.0.0 --token-file token --tls-cert c.pem --tls-key k.pem
  curl -s localhost:8000/v2/models/mlp""")  # fmt: skip
@click.argument("models", metavar="REPO|MODEL.ONNX|FOLDER",
                type=click.Path(exists=True, path_type=Path))  # fmt: skip
@click.option("--adapters", type=click.Path(path_type=Path), metavar="DIR",
              help="Adapters of one language model, NAME.onnx_adapter, which requests choose by "
                   "name; its folder adapters/ by default.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=_PORT, default=8000, show_default=True, help="For HTTP; 0 for any.")
@click.option("--grpc-port", type=_PORT, help="For gRPC; 0 for any.")
@click.option(
    "--provider", type=click.Choice(_PROVIDERS), default="cpu", show_default=True,
    help="Where the models run; one that cannot be used is an error.",
)  # fmt: skip
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
    "--batch-profile", type=click.IntRange(1), nargs=3, metavar="LEAST BEST MOST",
    help="Rows of a batch for which TensorRT builds one engine; without, one as each comes.",
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
@click.option(
    "--max-held",
    type=click.IntRange(1),
    show_default="16 times --max-body",
    help="Bytes that all unfinished requests may hold; half of it those of one client.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=2048,
    show_default=True,
    help="Connections over HTTP, half of them from one address; as many over gRPC.",
)
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="A name that HTTP requests may call the server by, besides addresses and "
                   "names without a dot; *.NAME for all below, * for any. Repeatable.")  # fmt: skip
@click.option("--allowed-origin", "allowed_origins", multiple=True, metavar="ORIGIN",
              help="An origin, as https://app.example.org, of pages that may send requests "
                   "besides the server's own; * for any. Repeatable.")  # fmt: skip
@click.option("--wait", "waits", is_flag=True,
              help="Answer also while the repository has no models.")  # fmt: skip
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
@click.option("--traceback", is_flag=True, expose_value=False, callback=_keep_traceback,
              help="Show the whole Python traceback of an error.")  # fmt: skip
@click.version_option(__version__, message="flow2onnx-serve %(version)s")
def serve(
    models: Path,
    token_file: Path | None,
    provider: str,
    shared_pool: bool,
    native: bool,
    **options: Any,
) -> None:
    """Answer inference requests (Open Inference Protocol v2, as Triton and KServe speak it).

    A repository is REPO/MODEL/VERSION/model.onnx, with config.pbtxt if you like; a FOLDER is one of
    onnxruntime-genai with slots. Adapters in MODEL/adapters come and go while the server runs, and
    the parameter adapter of a request chooses one. New versions are
    taken up while the server runs, once they have loaded, warmed up and passed their check; logs
    are JSON on stderr. SIGTERM lets it finish what it has.
    """
    # here, so that `--help` need not wait for onnxruntime and gRPC
    from flow2onnx_runtime import Options

    from flow2onnx_serve.lifecycle import run
    from flow2onnx_serve.logs import log_as_json
    from flow2onnx_serve.settings import Settings

    token = None if token_file is None else _read_token(token_file)
    settings = Settings(
        models=models,
        options=Options(
            providers=find_provider(provider).names,
            shared_threads=shared_pool,
            batch_profile=options.pop("batch_profile"),
        ),
        max_queue=options.pop("queue"),
        delay=options.pop("delay_ms") / 1000,
        token=token,
        prepare=_accelerate(provider) if native else None,
        **options,
    )
    log_as_json()
    # what gRPC's library writes to stderr is no JSON, as the logs there are
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    run(settings, __version__)
    sys.exit(0)


def _read_token(path: Path) -> str:
    """The token in a file, without the space around it."""
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionsError(
            f"the token in {path} cannot be read: {error}", hint="write it there as plain text"
        ) from error


def _accelerate(provider: str) -> "Prepare":
    """The installed accelerator; a missing one is an error at the start, not of each model."""
    from flow2onnx_runtime.extensions import accelerator

    if provider != "cpu":
        raise click.UsageError(f"--native is for --provider cpu, not {provider}")
    found = accelerator(True)
    assert found is not None, "a missing one is an error"
    return found.accelerate
