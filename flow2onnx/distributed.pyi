"""`flow.distributed`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins

def get_rank() -> _builtins.int:
    """The number of this process among those that `flow2onnx launch` or its like started."""
def get_world_size() -> _builtins.int:
    """How many processes there are."""
