"""The modules of torch that nodes come from, as its newer exporter says in their metadata."""

import ast

import onnx

__all__ = ["SCOPES", "module_of", "name_by_modules", "read_scopes"]

SCOPES = "pkg.torch.onnx.name_scopes"  # the key of the metadata


def read_scopes(text: str) -> list[str]:
    """The modules around a node, from the outermost on; none where the text says none."""
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    is_list = isinstance(found, list) and all(isinstance(part, str) for part in found)
    return [part.partition("@")[0] for part in found[:-1]] if is_list else []


def module_of(node: onnx.NodeProto) -> str:
    """The innermost module around a node, such as ``layers.0.q_proj``; empty where none is said."""
    return next(filter(None, reversed(_scopes(node))), "")


def name_by_modules(model: onnx.ModelProto) -> None:
    """Put the path of its module before each node's name, in place.

    Given:   node_linear, of the module layers.0.self_attn.q_proj
    Result:  layers.0/self_attn/q_proj/node_linear, as the older exporter has it
    """
    for node in model.graph.node:
        outer, path = "", []
        for scope in filter(None, _scopes(node)):
            path.append(scope.removeprefix(f"{outer}.") if outer else scope)
            outer = scope
        if path:
            node.name = "/".join((*path, node.name or node.output[0]))


def _scopes(node: onnx.NodeProto) -> list[str]:
    return next((read_scopes(e.value) for e in node.metadata_props if e.key == SCOPES), [])
