"""`flow.util`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins

def unique_str(prefix: _builtins.str) -> _builtins.str:
    """`prefix` and a number that this session has not used with it."""
