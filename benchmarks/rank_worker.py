"""One rank of a peer: it sets a workload up, then runs as many steps as it is told.

    python -m benchmarks.rank_worker ddp:bucket=4 mlp

The launcher's variables say which rank it is. It speaks with the driver as `benchmarks.worker`
does, but is asked "run MODE N", where the mode is

    step         steps as users run them
    compute      the same without communication, which leaves the ranks to themselves
    communicate  what a step communicates, and nothing else
"""

import argparse
import importlib
import json
import os
import platform
import sys

from benchmarks.peers import Options, RankedStep
from benchmarks.worker import confine, peak_mb, tell, timed, version_of
from benchmarks.workloads import workload

PEERS = ("data_parallel", "ddp")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", help=f"{' or '.join(PEERS)}, with variants after a colon")
    parser.add_argument("workload")
    parser.add_argument("--offset", type=int, default=0, help="the number of its processor")
    args = parser.parse_args()
    confine(1, args.offset)
    serve(prepare(args.peer, args.workload))


def prepare(peer: str, name: str) -> RankedStep:
    """The step of the peer, run three times; tells how that went."""
    module_name, _, variant = peer.partition(":")
    module = importlib.import_module(f"benchmarks.peers.{module_name}")
    work = workload(name)
    options = Options(frozenset(filter(None, variant.split(","))), threads=1)
    made: RankedStep = module.ranked_step(work, work.variables(), work.data(), options)
    results = [float(made.step(0)) for _ in range(3)]  # of one batch, so that updates show
    tell(json.dumps({
        "results": results, "sizes": made.sizes(), "state_bytes": made.state_bytes(),
        "versions": {"python": platform.python_version(),
                     **{p: version_of(p) for p in module.VERSIONS}},
    }))  # fmt: skip
    return made


def serve(made: RankedStep) -> None:
    """Answer the driver until it says "end"."""
    modes = {"step": made.step, "compute": made.compute, "communicate": made.communicate}
    done = 3
    for line in sys.stdin:
        if line.startswith("end"):
            break
        _, mode, count = line.split()
        tell("{} {}".format(*timed(modes[mode], done, int(count))))
        done += int(count)
    tell(str(peak_mb()))
    sys.stdout.flush()
    os._exit(0)  # all ranks end now: none waits for another's goodbye


if __name__ == "__main__":
    main()
