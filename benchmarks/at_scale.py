"""Steps on 8 to 1,024 GPUs, computed from what few ranks were measured to do.

    python -m benchmarks.at_scale > docs/scaling.md

Sizes and arithmetic of the networks are counted, two constants come from `benchmarks.scaling_out`;
all else is assumed, in `Cluster`, and the page says so.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.driver import RESULTS
from benchmarks.workloads import workload

GPUS = (8, 16, 32, 64, 128, 256, 512, 1024)
ONEFLOW = 94.5  # % of OneFlow's class-sharded head at 8 devices, as published
_BACKWARD = 2 / 3  # of the arithmetic of a step
_FLOAT = 4  # bytes of a gradient
_ROWS = 64  # of faces, for each GPU


@dataclass(frozen=True)
class Cluster:
    """Assumptions about machines and their links; rates are those of one GPU, each way."""

    per_machine: int = 8
    inside: float = 150e9  # bytes a second between GPUs of a machine
    outside: float = 12.5e9  # bytes a second between machines
    inside_s: float = 5e-6  # latency of one message
    outside_s: float = 15e-6
    arithmetic: float = 50e12  # operations a second that a step sustains
    to_host: float = 25e9  # bytes a second between a GPU and its host
    buckets: int = 4


@dataclass(frozen=True)
class Constants:
    """The results of `benchmarks.scaling_out`.

    `hidden` is the share of the communication over the link for which a step does not take longer,
    of what the way back lasts long enough for; `host` the bytes a second that gloo sums up between
    two ranks of one machine.
    """

    hidden: float
    host: float


def constants(found: Mapping[str, Any]) -> Constants:
    """The constants of a result: medians over our rows of two ranks."""
    ours = [r for r in found["rows"] if (r["peer"], r["ranks"]) == ("flow2onnx", 2)]
    rows = [r for r in ours if r["hidden"] is not None]
    over_link = [_hidden(r) for r in rows if "loopback" not in r["link"] and len(_big(r)) > 1]
    rates = [sum(_big(r)) / r["communication_ms"] * 1000 for r in rows
             if "loopback" in r["link"] and _big(r)]  # fmt: skip
    if not over_link or not rates:
        raise SystemExit("scaling_out.json has no two ranks on a link and on one machine")
    hidden = min(max(statistics.median(over_link), 0.0), 1.0)
    return Constants(hidden, statistics.median(rates))


def _hidden(row: Mapping[str, Any]) -> float:
    """The share of what could be hidden in a row that is hidden."""
    computes, sends = row["compute_ms"], row["communication_ms"]
    hidden: float = (computes + sends - row["ms"]) / min(sends, _BACKWARD * computes)
    return hidden


def _big(row: Mapping[str, Any]) -> list[int]:
    """The bytes of the buckets of a row, without small results."""
    return [size for size in row["collectives"] if size >= 2**18]


def all_reduce_s(size: float, gpus: int, cluster: Cluster) -> float:
    """The seconds to add up `size` bytes over all GPUs.

    Rings within machines, by which each GPU comes to have a part, and a ring or a tree between
    them for the parts: 2 (n - 1) / n of the bytes pass each GPU, and each bucket waits for
    2 (n - 1) messages in a ring, 2 log2(n) in a tree.
    """
    own, machines = min(gpus, cluster.per_machine), math.ceil(gpus / cluster.per_machine)
    inside = 2 * (own - 1) / own * size / cluster.inside
    outside = 2 * (machines - 1) / machines * size / own / cluster.outside
    hops = min(2 * (machines - 1), 2 * math.ceil(math.log2(machines)))
    waits = 2 * (own - 1) * cluster.inside_s + hops * cluster.outside_s
    return inside + outside + cluster.buckets * waits


def all_gather_s(size: float, gpus: int, cluster: Cluster) -> float:
    """The seconds until every GPU has `size` bytes, of which each had its part."""
    one = Cluster(**{**cluster.__dict__, "buckets": 1})
    return all_reduce_s(size, gpus, one) / 2


@dataclass(frozen=True)
class Network:
    """A network: operations of a step on one GPU, bytes of gradients that all GPUs add up.

    `more` are the seconds of what else it sends, with none of it hidden.
    """

    name: str
    operations: float
    gradients: float
    more: Callable[[int, Cluster], float] = lambda gpus, cluster: 0.0


def efficiency(
    network: Network, gpus: int, cluster: Cluster, send_s: float, hidden: float
) -> tuple[float, float]:
    """The seconds of a step, and the share of them that one GPU would take."""
    alone = network.operations / cluster.arithmetic
    concealed = hidden * min(send_s, _BACKWARD * alone)
    step = alone + send_s - concealed + network.more(gpus, cluster)
    return step, alone / step


def by_nccl(network: Network, gpus: int, cluster: Cluster) -> float:
    """The seconds to add up the gradients between GPUs."""
    return all_reduce_s(network.gradients, gpus, cluster)


def by_host(network: Network, cluster: Cluster, found: Constants) -> float:
    """The same through host memory, as it is today; links between machines are no slower."""
    return network.gradients * (2 / cluster.to_host + 1 / found.host)


def networks() -> Iterator[Network]:
    """Those of the tables, counted from the definitions of the benchmarks."""
    resnet = _network("ResNet-50, 64 images of 224", "resnet50:batch=64")
    yield resnet
    bert = "encoder:batch=32,length=128,layers=24,units=1024,vocabulary=30522"
    yield _network("BERT-large, 32 texts of 128", bert)
    yield from faces(_ROWS)


def faces(batch: int) -> tuple[Network, Network]:
    """A network for faces with so many rows a GPU: its head in shards, and whole on each."""
    width, classes = 512, 1_000_000
    body = _network("", f"resnet50:batch={batch},side=112,classes={width}")
    head = 6 * batch * width * classes  # forward and backward of this GPU's classes on all rows

    def head_s(gpus: int, cluster: Cluster) -> float:
        """The seconds for features to all and gradients back, sums and maxima of the rows."""
        rows = batch * gpus * _FLOAT
        one = Cluster(**{**cluster.__dict__, "buckets": 1})
        return 2 * all_gather_s(rows * width, gpus, cluster) + 2 * all_reduce_s(rows, gpus, one)

    operations, title = body.operations + head, f"faces, {classes:,} classes"
    return (
        Network(f"{title}, sharded head", operations, body.gradients, head_s),
        Network(f"{title}, head on each", operations, body.gradients + width * classes * _FLOAT),
    )


def _network(name: str, text: str) -> Network:
    sizes = workload(text).sizes
    weights = sum(math.prod(shape) for shape in sizes.variables.values())
    return Network(name, 3.0 * sizes.flops, float(weights * _FLOAT))


def page(found: Mapping[str, Any], cluster: Cluster = Cluster()) -> str:  # frozen
    """The page as Markdown."""
    known, all_networks = constants(found), list(networks())
    lines = [
        "# Eight to 1,024 GPUs, computed", "",
        "`python -m benchmarks.at_scale > docs/scaling.md` writes this page. **No such cluster has "
        "been measured.** From one GPU to N each has its own batch; the efficiency is the step of "
        "one GPU divided by that of N.", "",
        f"Measured, by [benchmarks.scaling_out](../benchmarks/README.md): "
        f"of the communication that the way back lasts long enough for, {100 * known.hidden:.0f} % "
        "is hidden behind it (two ranks on a link of 1 Gbit/s between two network namespaces, "
        "networks of several buckets); gloo adds up "
        f"{known.host / 1e9:.2f} GB of gradients a second between two ranks of one machine.", "",
        "Counted: operations and weights of the networks; gradients travel in float32.", "",
        *_assumptions(cluster), "",
    ]  # fmt: skip
    lines += _table(
        "Gradients between GPUs, as NCCL moves them: not there yet", all_networks, cluster,
        lambda n, gpus: efficiency(n, gpus, cluster, by_nccl(n, gpus, cluster), known.hidden),
    )  # fmt: skip
    lines += _table(
        "Gradients through host memory and gloo: as it is", all_networks[:2], cluster,
        lambda n, gpus: efficiency(n, gpus, cluster, by_host(n, cluster, known), known.hidden),
    )  # fmt: skip
    eight, least = _at_eight(all_networks[2], cluster, known), _least_rows(cluster, known)
    from_on = (
        f"{ONEFLOW} % or more from {least} rows on" if least else f"below {ONEFLOW} % with any"
    )
    lines += [
        f"The class-sharded head is the case that OneFlow published: {ONEFLOW} % at 8 devices. By "
        f"these assumptions it is {100 * eight:.1f} % here with {_ROWS} rows a GPU, and {from_on}; "
        f"a head on each GPU would send {all_networks[3].gradients / 1e9:.1f} GB in every step.",
        "",
        "What the computation leaves out: input, stragglers, other users of the links, what "
        "batches that grow with N do to convergence, and any memory limit.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _at_eight(network: Network, cluster: Cluster, known: Constants) -> float:
    return efficiency(network, 8, cluster, by_nccl(network, 8, cluster), known.hidden)[1]


def _least_rows(cluster: Cluster, known: Constants) -> int | None:
    """The rows a GPU with which the sharded head is at OneFlow's figure, in steps of 16."""
    wanted = (n for n in range(_ROWS, 1025, 16)
              if _at_eight(faces(n)[0], cluster, known) >= ONEFLOW / 100)  # fmt: skip
    return next(wanted, None)


def _assumptions(cluster: Cluster) -> list[str]:
    rows = {
        "GPUs in a machine": cluster.per_machine,
        "between GPUs of a machine, each way": f"{cluster.inside / 1e9:g} GB/s, "
        f"{1e6 * cluster.inside_s:g} µs a message",
        "between machines, for each GPU and way": f"{cluster.outside / 1e9:g} GB/s, "
        f"{1e6 * cluster.outside_s:g} µs a message",
        "arithmetic that a step sustains": f"{cluster.arithmetic / 1e12:g} TFLOP/s",
        "between a GPU and its host": f"{cluster.to_host / 1e9:g} GB/s",
        "buckets": cluster.buckets,
        "of a step what is the way back, behind which gradients are sent": "two thirds",
    }
    return ["| assumed | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())]


def _table(
    title: str, chosen: list[Network], cluster: Cluster,
    found: Callable[[Network, int], tuple[float, float]],
) -> list[str]:  # fmt: skip
    cells = [
        [n.name, f"{n.gradients / 1e6:,.0f} MB",
         f"{1000 * n.operations / cluster.arithmetic:.0f} ms",
         *(f"{100 * found(n, gpus)[1]:.1f} %" for gpus in GPUS)]
        for n in chosen
    ]  # fmt: skip
    header = ["", "gradients", "step of one GPU", *(f"{gpus:,}" for gpus in GPUS)]
    rows = [header, ["---", *["---:"] * (len(header) - 1)], *cells]
    return [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]


def main() -> None:
    path = RESULTS / "scaling_out.json"
    if not path.exists():
        raise SystemExit(f"there is no {path}: python -m benchmarks.scaling_out writes it")
    found = json.loads(path.read_text(encoding="utf-8"))
    print(page(found), end="")


if __name__ == "__main__":
    main()
