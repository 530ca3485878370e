"""`flow.sysconfig`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import typing as _typing

def get_compile_flags() -> _builtins.list[_builtins.str]:
    """The flags for compiling operators against OneFlow: none."""
def get_cuda_version() -> _builtins.str:
    """The CUDA release this package was compiled for: it is not compiled."""
def get_include() -> _typing.NoReturn:
    """Not available: there is no C++ library to compile operators against; compose the operator from flow operators inside the job."""
def get_lib() -> _typing.NoReturn:
    """Not available: there is no C++ library to compile operators against; compose the operator from flow operators inside the job."""
def get_link_flags() -> _builtins.list[_builtins.str]:
    """The flags for compiling operators against OneFlow: none."""
def has_rpc_backend_grpc() -> _builtins.bool:
    """False: this part of OneFlow is not here."""
def has_rpc_backend_local() -> _builtins.bool:
    """False: this part of OneFlow is not here."""
def with_cuda() -> _builtins.bool:
    """True if jobs can run on a GPU."""
def with_xla() -> _builtins.bool:
    """False: this part of OneFlow is not here."""
