"""Flower: federated training of one bundle by its Message API, on clients in any language.

A server averages the variables of a bundle; which strategy averages, and secure aggregation, are
Flower's. A client is a function that learns: in this process, by the runtime for Python, or by a
command in any other language whose runtime saves and loads the state of bundles.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import FeedError, RunError, Trainer
from flow2onnx_runtime.deltas import add_delta, difference, float_variables
from flow2onnx_runtime.dtypes import Array

from flow2onnx.integrations.models import numbers
from flow2onnx.integrations.packages import package

__all__ = ["Learn", "Learned", "arrays_record", "by_command", "client_app", "in_process",
           "load_variables", "server_app", "variables"]  # fmt: skip

Arrays = Mapping[str, Array]
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Learned:
    """The result of a client: its variables, the number of its examples, what it measured."""

    variables: Arrays
    examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


# A round on one client: the server's variables and its config, to what came of them.
Learn = Callable[[Arrays, Config], Learned]


def variables(trainer: Trainer) -> dict[str, Array]:
    """The variables of real numbers by name, half precision in float32: what a server averages."""
    state = trainer.state_dict()
    return difference(state, _zeros(state), float_variables(trainer.manifest))


def load_variables(trainer: Trainer, values: Arrays) -> None:
    """Replace the variables of real numbers; slots and the counter stay.

    Raises `StateError`, and changes nothing, for names or shapes that are not the bundle's.
    """
    state = trainer.state_dict()
    kinds = float_variables(trainer.manifest)
    trainer.load_state_dict({**state, **add_delta(_zeros(state), values, 1.0, kinds)})


def in_process(
    bundle: str | os.PathLike[str], data: Callable[[], Any], epochs: int = 1, **settings: Any
) -> Learn:
    """A client that trains with `Trainer.fit`; `data` returns the rows that it has.

    `settings` are those of `fit`. Optimizer slots begin anew in each round, as the server sends
    variables alone.
    """

    def learn(values: Arrays, config: Config) -> Learned:
        trainer = Trainer(bundle)
        load_variables(trainer, values)
        rows = data()
        rounds = int(config.get("epochs", epochs))
        history = trainer.fit(rows, rounds, **{"progress": False, **settings})
        return Learned(variables(trainer), _count(rows), numbers(history.last))

    return learn


def by_command(bundle: str | os.PathLike[str], command: Sequence[str | os.PathLike[str]]) -> Learn:
    """A client in another language: a command that trains from one state file to another.

    It is run with three more words: the bundle's folder, the file to load, the file to save, and
    prints as its last line ``{"examples": N, "loss": X, …}``. Raises `RunError` with what it said
    if it fails.
    """

    def learn(values: Arrays, config: Config) -> Learned:
        trainer = Trainer(bundle)
        load_variables(trainer, values)
        with tempfile.TemporaryDirectory(prefix="flow2onnx-") as folder:
            given, learnt = (Path(folder) / f"{n}.safetensors" for n in ("given", "learnt"))
            trainer.save(given)
            words = [*(os.fspath(word) for word in (*command, bundle, given, learnt))]
            done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise RunError(f"{words[0]} ended with {done.returncode}: "
                               f"{(done.stderr or done.stdout).strip()[-500:]}")  # fmt: skip
            told = _told(words[0], done.stdout)
            trainer.load(learnt)
        return Learned(variables(trainer), int(told.pop("examples")), told)

    return learn


def client_app(client: Callable[[Any], Learn]) -> Any:
    """A ClientApp of Flower whose `train` learns from the server's variables.

    `client` is called with the Context of a node, whose ``node_config["partition-id"]`` may choose
    its data, and returns how it learns: ``client_app(lambda node: in_process("bundle", rows))``.
    """
    flower = package("flwr.app", "flwr")
    app = package("flwr.clientapp", "flwr").ClientApp()

    @app.train()  # type: ignore[untyped-decorator]  # Flower is imported when it is asked for
    def train(message: Any, context: Any) -> Any:
        content = message.content
        values = {name: array.numpy() for name, array in content["arrays"].items()}
        learned = client(context)(values, dict(content.get("config") or {}))
        metrics = {"num-examples": learned.examples, **learned.metrics}
        records = {
            "arrays": arrays_record(learned.variables),
            "metrics": flower.MetricRecord(metrics),
        }
        return flower.Message(content=flower.RecordDict(records), reply_to=message)

    return app


def server_app(
    bundle: str | os.PathLike[str],
    rounds: int = 3,
    strategy: Any = None,
    config: Config | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Any:
    """A ServerApp of Flower that averages the variables of a bundle for some rounds.

    `strategy` is one of `flwr.serverapp.strategy`, FedAvg unless given; `config` goes to the
    clients; `save` is where the state of the last round is written, for `Trainer.load`.
    """
    flower = package("flwr.app", "flwr")
    server = package("flwr.serverapp", "flwr")
    app = server.ServerApp()

    @app.main()  # type: ignore[untyped-decorator]  # Flower is imported when it is asked for
    def main(grid: Any, context: Any) -> None:
        chosen = strategy or package("flwr.serverapp.strategy", "flwr").FedAvg(fraction_evaluate=0)
        trainer = Trainer(bundle)
        result = chosen.start(
            grid=grid, initial_arrays=arrays_record(variables(trainer)), num_rounds=rounds,
            train_config=flower.ConfigRecord(dict(config or {})),
        )  # fmt: skip
        load_variables(trainer, {name: a.numpy() for name, a in result.arrays.items()})
        if save is not None:
            trainer.save(save)

    return app


def arrays_record(values: Arrays) -> Any:
    """Flower's record of arrays, by their names."""
    flower = package("flwr.app", "flwr")
    return flower.ArrayRecord({name: flower.Array(np.asarray(a)) for name, a in values.items()})


def _zeros(values: Arrays) -> dict[str, Array]:
    return {name: np.zeros_like(array) for name, array in values.items()}


def _count(rows: Any) -> int:
    """The number of rows in what `fit` takes."""
    if isinstance(rows, Mapping):
        return len(next(iter(rows.values())))
    if isinstance(rows, tuple):
        return len(rows[0])
    try:
        return len(rows)
    except TypeError:
        raise FeedError("a client's data has no length", hint="give arrays, or a list") from None


def _told(command: str, output: str) -> dict[str, float]:
    """The numbers in the last line of a client's output."""
    line = (output.strip().splitlines() or [""])[-1]
    try:
        told = {str(name): float(value) for name, value in json.loads(line).items()}
    except (ValueError, AttributeError, TypeError):
        told = {}
    if not told.get("examples", 0) >= 1:
        raise RunError(f"{command} said {line!r}",
                       hint='its last line is to be {"examples": N, "loss": X}')  # fmt: skip
    return told
