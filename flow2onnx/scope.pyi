"""`flow.scope`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import contextlib as _contextlib
import flow2onnx.api.scope as _flow2onnx_api_scope
import typing as _typing
import typing_extensions as _typing_extensions

def consistent_view() -> _flow2onnx_api_scope.LogicalView:
    """Blobs are whole, however many devices hold them."""
def consistent_view_enabled() -> _builtins.bool:
    """True if the consistent view holds here."""
@_typing_extensions.deprecated("use flow.current_scope")
def current_scope() -> _flow2onnx_api_scope.Scope:
    """The scope at this place of the job being traced."""
def mirrored_view() -> _flow2onnx_api_scope.LogicalView:
    """Blobs are one device's piece."""
def mirrored_view_enabled() -> _builtins.bool:
    """True if the mirrored view holds here in the job being traced."""
def namespace(name: _builtins.str) -> _contextlib.AbstractContextManager[None]:
    """Prefix the names of operators and variables made inside with ``name-``."""
def placement(device_tag: _builtins.str, machine_device_ids: _builtins.str | _collections_abc.Sequence[_builtins.str], hierarchy: _typing.Any = None) -> _flow2onnx_api_scope.Placement:
    """``placement("gpu", "0:0")``: a device tag and one or several ``machine:device`` ranges.

    The jobs of a session run on one kind of device, the GPU if anything is placed there. Of a train
    job that several processes share, the one that plays the device computes what is placed there,
    and keeps the variables made there.
    """
