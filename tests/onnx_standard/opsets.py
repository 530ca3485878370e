"""Models of other opsets, brought to one that the runtime loads and the rules are written for."""

import onnx
from onnx.defs import SchemaError, get_schema

from flow2onnx.compile.opsets import newest_opset

OLDEST = 18  # below, axes are attributes that later became inputs
NEWEST = newest_opset()  # of the installed runtime


class OpsetError(Exception):
    """A model that cannot be brought to a usable opset."""


def at_opset(model):
    """The model at an opset from OLDEST to NEWEST."""
    version = max((o.version for o in model.opset_import if not o.domain), default=0)
    if version > NEWEST:
        return _older(model, version)
    if version < OLDEST:
        return onnx.version_converter.convert_version(model, OLDEST)
    return model


def _older(model, version):
    """The same nodes read as NEWEST, where every operator is there with these attributes."""
    for node in model.graph.node:
        try:
            then = get_schema(node.op_type, NEWEST, "")
        except SchemaError:
            raise OpsetError(f"{node.op_type} is new in opset {version}") from None
        unknown = {a.name for a in node.attribute} - set(then.attributes)
        if unknown:
            raise OpsetError(f"attributes new in opset {version}: {', '.join(sorted(unknown))}")
    lowered = onnx.ModelProto()
    lowered.CopyFrom(model)
    for entry in lowered.opset_import:
        if not entry.domain:
            entry.version = NEWEST
    lowered.ir_version = min(lowered.ir_version, 12)
    return lowered
