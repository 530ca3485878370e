"""`flow.deprecated.nn`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import typing as _typing

def Module() -> _typing.NoReturn:
    """Not available: a job is traced once, so there are no modules that live between its operators; call the operator of flow, such as flow.nn.relu, in the body of the job."""
