"""torch's DistributedDataParallel on gloo: each rank takes its rows, the way back hides buckets."""

import os
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as fn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.peers import Data, Options, RankedStep, Values
from benchmarks.peers.torch import _Ops, _optimizer
from benchmarks.workloads import Workload, workload

VERSIONS = ("torch", "numpy")
Tensor = torch.Tensor


class _Loss(torch.nn.Module):
    """The mean loss of a batch, with the variables as parameters."""

    def __init__(self, work: Workload, values: Values) -> None:
        super().__init__()
        self.network = work.network
        self.names = {name: f"v{i}" for i, name in enumerate((*values, *work.state()))}
        for name, value in values.items():
            self.register_parameter(
                self.names[name], torch.nn.Parameter(torch.from_numpy(value.copy()))
            )
        for name, value in work.state().items():
            self.register_buffer(self.names[name], torch.from_numpy(value))

    def forward(self, *batch: Tensor) -> Tensor:
        values = {name: getattr(self, attribute) for name, attribute in self.names.items()}
        return fn.cross_entropy(self.network(_Ops(values, trains=True), *batch[:-1]), batch[-1])


def ranked_step(work: Workload, values: Values, data: Data, options: Options) -> RankedStep:
    """Steps on this rank's rows; one rank alone is torch without DistributedDataParallel."""
    torch.set_num_threads(options.threads)
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    rows = work.labels.shape[0] // size  # some networks are made for a number of them
    name, _, settings = work.name.partition(":")
    module = _Loss(workload(f"{name}:{settings},batch={rows}"), values)
    model: Any = module
    if size > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(
            module, bucket_cap_mb=options.number("bucket", 25), gradient_as_bucket_view=True
        )
    optimizer = _optimizer(work.update, list(module.parameters()), is_fused=True)
    batches = [_rows(batch, rank, size) for batch in data]

    def step(i: int) -> float:
        optimizer.zero_grad()
        loss = model(*batches[i % len(batches)])
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    def compute(i: int) -> float:
        if size == 1:
            return step(i)
        with model.no_sync():
            return step(i)

    def communicate(i: int) -> None:
        parts = [torch.zeros(count // 4) for count in sizes()]
        for pending in [dist.all_reduce(part, async_op=True) for part in parts]:
            pending.wait()

    def sizes() -> list[int]:
        if size == 1:
            return []
        known = model._get_ddp_logging_data()
        said = known.get("rebuilt_bucket_sizes") or known["bucket_sizes"]
        return [int(part) for part in str(said).split(",") if part.strip()]

    def state_bytes() -> int:
        slots = [v for state in optimizer.state.values() for v in state.values()]
        return sum(v.nbytes for v in slots if isinstance(v, Tensor) and v.ndim)

    return RankedStep(step, compute, communicate, sizes, state_bytes)


def _rows(batch: list[Any], rank: int, size: int) -> list[Tensor]:
    """This rank's rows of a batch; labels are int64, as the loss wants them."""
    parts = [torch.from_numpy(array).tensor_split(size)[rank] for array in batch]
    return [*parts[:-1], parts[-1].long()]
