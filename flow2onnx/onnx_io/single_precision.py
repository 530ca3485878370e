"""Models without float64, for runtimes that have no kernels for it."""

import numpy as np
import onnx_ir as ir

__all__ = ["narrow_float64"]

_WIDE, _NARROW = ir.DataType.DOUBLE, ir.DataType.FLOAT
_TYPES = ("to", "dtype")  # attributes that say an element type


def narrow_float64(model: ir.Model) -> None:
    """Compute in float32 what a model computes in float64, in place.

    Numbers of a step that are computed so, as rates, differ by about 1e-5 of themselves at most.
    """
    for value in model.graph.initializers.values():
        if value.const_value is not None and value.const_value.dtype == _WIDE:
            value.const_value = _narrow(value.const_value)
            value.dtype = _NARROW
    for node in model.graph.all_nodes():
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == _WIDE:
                node.attributes[name] = ir.AttrTensor(name, _narrow(attribute.value))
            elif name in _TYPES and attribute.value == _WIDE:
                node.attributes[name] = ir.AttrInt64(name, _NARROW)
        for output in node.outputs:
            if output.dtype == _WIDE:
                output.dtype = _NARROW


def _narrow(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.Tensor(tensor.numpy().astype(np.float32), name=tensor.name)
