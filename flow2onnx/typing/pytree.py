"""Nested lists, tuples and dicts: taken apart into leaves, and put together again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["TreeDef", "elements", "flatten", "unflatten"]


@dataclass(frozen=True)
class TreeDef:
    """The nesting of list, tuple, dict and None around leaves."""

    kind: Literal["leaf", "none", "list", "tuple", "dict"]
    children: tuple["TreeDef", ...] = ()
    keys: tuple[Any, ...] = ()  # of a dict, whatever the job function used

    @property
    def leaf_count(self) -> int:
        """The number of leaves that `unflatten` takes."""
        return 1 if self.kind == "leaf" else sum(child.leaf_count for child in self.children)


def flatten(structure: object) -> tuple[list[Any], TreeDef]:
    """The leaves of nested lists, tuples and dicts in order, and the nesting without them."""
    leaves: list[Any] = []
    return leaves, _tree_of(structure, leaves)


def _tree_of(structure: object, leaves: list[Any]) -> TreeDef:
    if structure is None:
        return TreeDef("none")
    if isinstance(structure, dict):
        children = tuple(_tree_of(value, leaves) for value in structure.values())
        return TreeDef("dict", children, tuple(structure))
    if isinstance(structure, list | tuple):
        kind: Literal["list", "tuple"] = "list" if isinstance(structure, list) else "tuple"
        return TreeDef(kind, tuple(_tree_of(value, leaves) for value in structure))
    leaves.append(structure)
    return TreeDef("leaf")


def unflatten(treedef: TreeDef, leaves: Sequence[Any]) -> Any:  # the caller knows its leaves
    """The nested value with these leaves; subclasses of list, tuple and dict become plain."""
    assert len(leaves) == treedef.leaf_count, f"{len(leaves)} leaves for {treedef}"
    return _build(treedef, iter(leaves))


def _build(tree: TreeDef, leaves: Iterator[Any]) -> Any:  # as in unflatten
    if tree.kind == "leaf":
        return next(leaves)
    if tree.kind == "none":
        return None
    values = [_build(child, leaves) for child in tree.children]
    if tree.kind == "dict":
        return dict(zip(tree.keys, values, strict=True))
    return values if tree.kind == "list" else tuple(values)


def elements(value: object) -> Iterator[object]:
    """Whatever is no list, tuple or dict, None included."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from elements(item)
    else:
        yield value
