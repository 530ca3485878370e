"""The table of what several processes compute beside one: ``python -m tests.ranks.equality``.

Each argument is one column, ENGINE:RANKS, with torch, mpi or mpich; without any, each engine has 2
and 4 ranks. The interpreters are those of `make ranks`, or RANKS_PYTHON and MPICH_PYTHON. A row has
the largest difference of anything that a case gives, state and results, from one process on the
whole batch. The command fails where a limit is exceeded, or where two ranks differ in a bit.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tests.ranks import cases
from tests.ranks.ranks import ends, python_with, start_ranks

USUAL = ("torch:2", "torch:4", "mpi:2", "mpi:4", "mpich:2", "mpich:4")
# Adam and its kin divide by roots of small numbers; half precision rounds sums of rows.
LIMITS = dict.fromkeys(
    ("adam", "lamb", "slices", "segments", "zero_adam", "zero_lamb_and_norm", "zero_slices",
     "zero_in_segments", "zero_averages", "stages", "both_layers_split", "lamb_of_all_kinds",
     "table_split"), 2e-6,
) | {"float16": 2e-3, "zero_float16_in_segments": 2e-3, "bfloat16": 2e-2}  # fmt: skip
LIMIT = 1e-6
_LIBRARY = "from mpi4py import MPI; print(MPI.Get_library_version().split(',')[0].splitlines()[0])"


def trained_by(count, engine, folder, names=(), module="tests.ranks.cases", *, is_bound=False):
    """The arrays that each rank has in the end, and what each printed."""
    arguments = ["-m", module, str(folder), *names]
    results = ends(start_ranks(count, arguments, engine, is_bound=is_bound), 1800)
    assert all(status == 0 for status, _, _ in results), results
    arrays = [dict(np.load(folder / f"{rank}.npz")) for rank in range(count)]
    return arrays, [out for _, out, _ in results]


def difference(name, whole, ranks):
    """The largest difference of a case from one process; None if two ranks differ in a bit."""
    keys = [key for key in ranks[0] if key.startswith(f"{name}/")]
    assert keys, f"no rank has anything of {name}"
    for other in ranks[1:]:
        if not all(np.array_equal(ranks[0][k], other[k]) for k in keys):
            return None
    return max(float(np.max(np.abs(_numbers(ranks[0][k]) - _numbers(whole[k])))) for k in keys)


def _numbers(array):
    return np.append(np.asarray(array, np.float64).reshape(-1), 0.0)  # which has one at least


def column(text, names):
    """The head of a column, and its differences by case."""
    engine, count = text.split(":")
    title = "gloo" if engine == "torch" else _library(python_with(engine))
    cases.DEVICES = int(count)
    with TemporaryDirectory() as folder:
        ranks, _ = trained_by(cases.DEVICES, engine, Path(folder), names)
    whole = cases.run(names)
    return f"{title}, {count} ranks", {n: difference(n, whole, ranks) for n in names}


def _library(python):
    """The name of the MPI library of an interpreter."""
    made = subprocess.run([python, "-c", _LIBRARY], check=True, capture_output=True, text=True)
    words = made.stdout.split()
    return "MPICH" if "MPICH" in words[0] else " ".join(words[:2])


def main(arguments):
    """Print the table; the exit status."""
    names = list(cases.CASES)
    columns = dict(column(text, names) for text in arguments or USUAL)
    print("| case | limit |", " | ".join(columns), "|")
    print("|---|---|" + "---|" * len(columns))
    wrong = 0
    for name in names:
        found = [by_case[name] for by_case in columns.values()]
        limit = LIMITS.get(name, LIMIT)
        wrong += sum(d is None or not d <= limit for d in found)
        cells = ["ranks differ" if d is None else f"{d:.1e}" if d else "0" for d in found]
        print(f"| `{name}` | {limit:.0e} |", " | ".join(cells), "|")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
