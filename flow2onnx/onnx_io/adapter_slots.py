"""Places for low-rank adapters in a model: products with a weight, and inputs beside them.

A slot is a pair of inputs ``M.lora_A.weight`` (columns, rank) and ``M.lora_B.weight`` (rank, rows)
of the product of module M, whose result y becomes y + (x A) B. Both have a first value of rank 0,
with which the model computes what it did; the runtime's adapter files fill them by name.
"""

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from flow2onnx_runtime import TensorInfo
from onnx import TensorProto, helper

from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.graph.contrib import CONTRIB_DOMAIN

__all__ = [
    "RANK", "Product", "Slot", "add_slots", "choose_products", "products", "slot_inputs",
    "slots_of",
]  # fmt: skip

RANK = "lora_r"  # how the names of the sizes begin that adapters choose
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
_PACKED_HALVES = ("gate", "up")
_REAL = (TensorProto.FLOAT, TensorProto.FLOAT16)


@dataclass(frozen=True)
class Slot:
    """The place of one adapter: its module, and the widths of what goes in and comes out."""

    module: str
    columns: int
    rows: int

    @property
    def down(self) -> str:
        """The name of A, (columns, rank)."""
        return self.module + _DOWN

    @property
    def up(self) -> str:
        """The name of B, (rank, rows)."""
        return self.module + _UP


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product with a weight, by node name; several modules may be packed in one weight.

    `slots` stand in the order of the columns of the result; `element` is the code of its type.
    """

    node: str
    x: str
    y: str
    slots: tuple[Slot, ...]
    element: int
    is_last: bool

    @property
    def is_half(self) -> bool:
        """True if adapters of it are in half precision."""
        return self.element == TensorProto.FLOAT16

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules."""
        return tuple(slot.module for slot in self.slots)


def products(model: onnx.ModelProto) -> list[Product]:
    """The products of a model with a weight of two dimensions, in its order."""
    graph = model.graph
    tensors = {t.name: t for t in graph.initializer}
    readers = _readers(graph.node)
    ends = {o.name for o in graph.output}
    found = []
    for node in graph.node:
        size = _weight_size(node, tensors)
        if size is None or node.input[1].endswith((_DOWN, _UP)):
            continue
        (columns, rows), element = size
        module = _module(node, tensors)
        slots = _parts(module, columns, rows, node.output[0], readers)
        found.append(
            Product(
                node=node.name, x=node.input[0], y=node.output[0], slots=slots, element=element,
                is_last=node.output[0] in ends or module.endswith("lm_head"),
            )
        )  # fmt: skip
    return found


def choose_products(
    known: Sequence[Product], targets: Iterable[str] | None
) -> list[tuple[Product, tuple[Slot, ...]]]:
    """Products with those of their slots that `targets` ask for.

    `targets` are shell patterns of modules, or of the last part of their names; without any, all
    but the model's head are taken. One that matches nothing raises ArgumentError.
    """
    patterns = None if targets is None else tuple(targets)
    names = [m for p in known for m in p.modules]
    if patterns is not None:
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in names):
                last = sorted({name.rpartition(".")[2] for name in names})
                raise ArgumentError(
                    f"targets: {pattern!r} matches no product with a weight",
                    hint=f"there are {', '.join(last[:12])}" if last else "the model has none",
                )
        if not patterns:
            raise ArgumentError("targets names nothing", hint="give modules such as 'q_proj'")
    chosen = []
    for product in known:
        slots = tuple(
            s for s in product.slots
            if (not product.is_last if patterns is None
                else any(_matches(s.module, p) for p in patterns))
        )  # fmt: skip
        if slots:
            chosen.append((product, slots))
    if not chosen:
        raise UnsupportedError(
            "the model has no product with a weight that could take an adapter",
            hint="MatMul, Gemm and MatMulNBits with a weight of two dimensions can",
        )
    return chosen


def slots_of(model: onnx.ModelProto) -> dict[str, Slot]:
    """The slots that a model has already, by module."""
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input
    }
    pairs = [(n.removesuffix(_DOWN), s) for n, s in shapes.items() if n.endswith(_DOWN)]
    return {m: Slot(m, s[0], shapes[m + _UP][1]) for m, s in pairs if m + _UP in shapes}


def slot_inputs(model: onnx.ModelProto) -> dict[str, TensorInfo]:
    """The inputs that adapters fill, by name, as a session of the model would tell them."""
    found = {}
    for slot in slots_of(model).values():
        for value in (v for v in model.graph.input if v.name in (slot.down, slot.up)):
            kind = value.type.tensor_type
            shape = tuple(d.dim_param or d.dim_value for d in kind.shape.dim)
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[value.name] = TensorInfo(value.name, shape, dtype, dtype.name)
    return found


def add_slots(model: onnx.ModelProto, chosen: Sequence[tuple[Product, tuple[Slot, ...]]]) -> None:
    """Give a model slots, in place; only nodes, inputs and empty initializers are added."""
    present = slots_of(model)
    if present:
        raise UnsupportedError(
            f"the model has slots already, such as {next(iter(present))}",
            hint="take it as it is, or the model as it was before",
        )
    wanted = {product.node: (product, slots) for product, slots in chosen}
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        if node.name in wanted and node.output[0] == wanted[node.name][0].y:
            nodes += _extend(node, *wanted[node.name])
    for product, slots in chosen:
        for slot in slots:
            # a size of its own: ranks may differ, and an adapter may leave slots empty
            rank = f"{RANK}/{slot.module}"
            _declare(model.graph, slot.down, (slot.columns, rank), product.element)
            _declare(model.graph, slot.up, (rank, slot.rows), product.element)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _extend(
    node: onnx.NodeProto, product: Product, slots: Sequence[Slot]
) -> Iterator[onnx.NodeProto]:
    """The nodes after a product that add what its adapters compute; the product is renamed."""
    y, taken = product.y, {slot.module for slot in slots}
    node.output[0] = f"{y}/base"
    parts = []
    for slot in product.slots:
        path = f"{product.node}/{slot.module.rpartition('.')[2]}"
        if slot.module not in taken:  # columns of a packed result that have no adapter
            yield from _zero_columns(product, slot, path)
        else:
            yield helper.make_node(
                "MatMul", [product.x, slot.down], [f"{path}/lora_A"], f"{path}/lora_A/MatMul"
            )
            yield helper.make_node(
                "MatMul", [f"{path}/lora_A", slot.up], [f"{path}/lora_B"], f"{path}/lora_B/MatMul"
            )
        parts.append(f"{path}/lora_B")
    change = parts[0]
    if len(parts) > 1:
        change = f"{product.node}/lora/Concat"
        yield helper.make_node("Concat", parts, [change], change, axis=-1)
    yield helper.make_node("Add", [f"{y}/base", change], [y], f"{product.node}/lora/Add")


def _zero_columns(product: Product, slot: Slot, path: str) -> Iterator[onnx.NodeProto]:
    """Zeros in the place of what an adapter would add: a product over no columns at all."""
    name = f"{path}/lora_B"
    none = helper.make_tensor(f"{name}/none", product.element, [0], b"", raw=True)
    del none.dims[:]
    none.dims.extend([slot.columns, 0])
    above = onnx.TensorProto()
    above.CopyFrom(none)
    above.name = f"{name}/above"
    del above.dims[:]
    above.dims.extend([0, slot.rows])
    yield helper.make_node("Constant", [], [none.name], none.name, value=none)
    yield helper.make_node("Constant", [], [above.name], above.name, value=above)
    yield helper.make_node(
        "MatMul", [product.x, none.name], [f"{name}/inner"], f"{name}/inner/MatMul"
    )
    yield helper.make_node("MatMul", [f"{name}/inner", above.name], [name], f"{name}/MatMul")


def _declare(graph: onnx.GraphProto, name: str, shape: Sequence[int | str], element: int) -> None:
    """An input with a first value that has no elements."""
    graph.input.append(helper.make_tensor_value_info(name, element, shape))
    empty = TensorProto(name=name, data_type=element, raw_data=b"")
    empty.dims.extend([0 if isinstance(d, str) else d for d in shape])
    graph.initializer.append(empty)


def _readers(nodes: Iterable[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            found.setdefault(name, []).append(node)
    return found


def _weight_size(
    node: onnx.NodeProto, tensors: Mapping[str, TensorProto]
) -> tuple[tuple[int, int], int] | None:
    """The (columns, rows) of the weight that a node multiplies with, and the type of the result."""
    if node.op_type == "MatMulNBits" and node.domain == CONTRIB_DOMAIN:
        numbers = {a.name: a.i for a in node.attribute}
        scales = tensors.get(node.input[2])
        element = scales.data_type if scales is not None else TensorProto.FLOAT
        return (numbers["K"], numbers["N"]), element
    if node.op_type not in ("MatMul", "Gemm") or node.domain not in ("", "ai.onnx"):
        return None
    weight = tensors.get(node.input[1])
    if weight is None or len(weight.dims) != 2 or weight.data_type not in _REAL:
        return None
    settings = {a.name: a for a in node.attribute}
    if "transA" in settings and settings["transA"].i:
        return None
    first, second = weight.dims
    is_turned = "transB" in settings and settings["transB"].i
    return ((second, first) if is_turned else (first, second)), weight.data_type


def _module(node: onnx.NodeProto, tensors: Mapping[str, TensorProto]) -> str:
    """The name of the module that a product is of, from the node's name or its weight's."""
    path = node.name.strip("/").split("/")
    if len(path) > 1 and path[-1].startswith((node.op_type, "MatMul")):
        return ".".join(path[:-1])
    weight = node.input[1]
    if weight.endswith(".weight"):
        return str(weight.removesuffix(".weight").removesuffix(".MatMul"))
    return str(node.name.strip("/").replace("/", ".") or node.output[0])


def _parts(
    module: str,
    columns: int,
    rows: int,
    y: str,
    readers: Mapping[str, Sequence[onnx.NodeProto]],
) -> tuple[Slot, ...]:
    """The slots of a product: one, or one for each module that is packed in its weight."""
    stem, _, last = module.rpartition(".")
    sizes = {}
    if last == "qkv_proj":
        sizes = _attention_widths(y, rows, readers)
    elif last == "gate_up_proj" and rows % 2 == 0:
        sizes = dict.fromkeys(_PACKED_HALVES, rows // 2)
    if not sizes:
        return (Slot(module, columns, rows),)
    before = f"{stem}." if stem else ""
    return tuple(Slot(f"{before}{n}_proj", columns, size) for n, size in sizes.items())


def _attention_widths(
    y: str, rows: int, readers: Mapping[str, Sequence[onnx.NodeProto]]
) -> dict[str, int]:
    """The widths of queries, keys and values, of the attention that reads them in one."""
    nodes = list(readers.get(y, ()))
    while nodes:
        node = nodes.pop()
        if node.op_type == "Add":  # the bias
            nodes += readers.get(node.output[0], ())
        if node.op_type == "GroupQueryAttention":
            counts = {a.name: a.i for a in node.attribute}
            heads, shared = counts["num_heads"], counts["kv_num_heads"]
            size = rows // (heads + 2 * shared)
            return {"q": heads * size, "k": shared * size, "v": shared * size}
    return {}


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(
        name.rpartition(".")[2], pattern
    )
