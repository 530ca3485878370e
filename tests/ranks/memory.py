"""The table of memory by ranks, with and without ZeRO-1: ``python -m tests.ranks.memory [ENGINE]``.

Adam trains 16 million weights. The state is what a rank keeps of weights and slots, in the buffers
that there are; the peak is of the whole process, as the system counts it. ENGINE is torch, mpi or
mpich.
"""

import sys

import numpy as np

from tests.ranks.ranks import ROOT, ends, start, start_ranks

COUNTS, MODES = (1, 2, 4), ("whole", "parts")
PROGRAM = str(ROOT / "tests/ranks/large.py")


def main(engine):
    """Print the table."""
    print("| ranks | state | slots of a rank | all state of a rank | peak of a process |")
    print("|---|---|---|---|---|")
    for count in COUNTS:
        for mode in MODES:
            arguments = [PROGRAM, mode]
            alone = count == 1
            processes = (
                [start(engine, arguments)] if alone else start_ranks(count, arguments, engine)
            )
            results = ends(processes, 1800)
            assert all(status == 0 for status, _, _ in results), results
            texts = " ".join(out for _, out, _ in results).split()
            found = np.max(np.array(texts, np.float64).reshape(-1, 3), axis=0)
            cells = " | ".join(f"{mebibytes:.0f} MiB" for mebibytes in found)
            print(f"| {count} | {mode} | {cells} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "torch")
