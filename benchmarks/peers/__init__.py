"""The peers: each module says in its library's terms what a workload does.

A module has `training` or `prediction` or both, which make a `Step`, and VERSIONS, the packages
whose versions the results name. It may have `about`, a dict that says how the steps are run.
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
