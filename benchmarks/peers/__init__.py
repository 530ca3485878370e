"""The peers: each module says in its library's terms what a workload does.

A module has `training` or `prediction` or both, which make a `Step`, or `ranked_step`, which makes
a `RankedStep`, and VERSIONS, the packages whose versions the results name. It may have `about`, a
dict that says how the steps are run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Values = dict[str, Array]
Data = list[list[Array]]
Step = Callable[[int], Any]  # from the number of a step to its loss, or to its logits


@dataclass(frozen=True)
class Options:
    """How a peer runs: what was asked of the worker.

    `variant` are switches of the library, such as ``compile`` and ``channels_last``; `model` the
    file that a prediction runs; `profile` how the names of flow2onnx's profiles begin.
    """

    variant: frozenset[str] = frozenset()
    threads: int = 1
    device: str = "cpu"
    precision: str = "float32"
    model: str = ""
    profile: str = ""

    def number(self, name: str, default: int) -> int:
        """The number of a switch such as ``bucket=4``."""
        found = [v.partition("=")[2] for v in self.variant if v.startswith(f"{name}=")]
        return int(found[0]) if found else default


@dataclass(frozen=True)
class RankedStep:
    """The step of one of several ranks; each takes the number of the step.

    `step` gives the loss of its own rows, or that of all. `compute` is a step that communicates
    nothing, `communicate` what a step communicates without the rest. `sizes` are the bytes of each
    collective, `state_bytes` those of the optimizer's slots that this rank holds.
    """

    step: Step
    compute: Step
    communicate: Step
    sizes: Callable[[], list[int]]
    state_bytes: Callable[[], int]
