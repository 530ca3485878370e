"""Places for low-rank adapters in a model: products with a weight, and inputs beside them.

A slot is a pair of inputs ``M.lora_A.weight`` (columns, rank) and ``M.lora_B.weight`` (rank, rows)
of the product of module M, whose result y becomes y + (x A) B. Both have a first value of rank 0,
with which the model computes what it did; the runtime's adapter files fill them by name.

Of a convolution A is (rank, columns, *kernel), with the stride and padding of its weight, and B
(rows, rank / groups, 1, …): two convolutions one after the other, as PEFT has them. With factors,
as DoRA needs them, a slot has a third input ``M.lora_factor.weight`` (rows), ones at first, with
which y + (x A) B is multiplied; a bias is not.
"""

import fnmatch
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
from flow2onnx_runtime import TensorInfo
from onnx import TensorProto, helper

from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.graph.contrib import CONTRIB_DOMAIN
from flow2onnx.onnx_io.torch_scopes import module_of

__all__ = [
    "RANK", "Product", "Slot", "add_slots", "choose_products", "fused_experts", "has_factors",
    "is_built", "module_slots", "products", "rename_slots", "slot_inputs", "slots_of",
]  # fmt: skip

RANK = "lora_r"  # how the names of the sizes begin that adapters choose
_ADDED = re.compile(r"/lora(_[AB])?(/|$)|/factor$|\.lora_(A|B|factor)\.weight$")
_DOWN, _UP, _FACTOR = ".lora_A.weight", ".lora_B.weight", ".lora_factor.weight"
_EXPERTS = ("MoE", "QMoE")
_OF_EXPERTS = ("down", "expert", "fc", "gate", "mlp", "moe", "up_", "w1", "w2", "w3")
_PACKED_HALVES = ("gate", "up")
_REAL = (TensorProto.FLOAT, TensorProto.FLOAT16)


@dataclass(frozen=True)
class Slot:
    """The place of one adapter: its module, and the widths of what goes in and comes out.

    A convolution has a `kernel`, the sizes of its window, and `groups`.
    """

    module: str
    columns: int
    rows: int
    kernel: tuple[int, ...] = ()
    groups: int = 1

    @property
    def down(self) -> str:
        """The name of A, (columns, rank), or (rank, columns, *kernel)."""
        return self.module + _DOWN

    @property
    def up(self) -> str:
        """The name of B, (rank, rows), or (rows, rank / groups, 1, …)."""
        return self.module + _UP

    @property
    def factor(self) -> str:
        """The name of what a result is multiplied by, (rows)."""
        return self.module + _FACTOR

    @property
    def terms(self) -> int:
        """The count of terms of each number that the module's product computes, by group."""
        return self.columns // self.groups * math.prod(self.kernel)

    def shapes(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of A and B of a rank."""
        if not self.kernel:
            return (self.columns, rank), (rank, self.rows)
        ones = (1,) * len(self.kernel)
        return (rank, self.columns, *self.kernel), (self.rows, rank // self.groups, *ones)


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


def is_built(model: onnx.ModelProto) -> bool:
    """True if onnxruntime-genai's builder named the modules, as its attention shows."""
    return any(n.name.endswith("/attn/GroupQueryAttention") for n in model.graph.node)


def products(model: onnx.ModelProto) -> list[Product]:
    """The products and convolutions of a model that have a weight, in its order."""
    graph = model.graph
    tensors = {t.name: t for t in graph.initializer}
    readers = _readers(graph.node)
    ends = {o.name for o in graph.output}
    wrapper = _wrapper(graph.node, tensors)
    weights = _weights_by_module(graph.node, tensors)
    has_parts = is_built(model)
    found = []
    for node, weight in _nodes_with_weight(graph.node, tensors):
        module = _module(node, tensors)
        if len(weights[module]) > 1:
            module = f"{module}.{_own_part(node, module)}"
        whole = replace(weight.slot, module=module.removeprefix(wrapper))
        # an export has the modules of PEFT, whose Phi-3 keeps several in one
        slots = _parts(whole, node.output[0], readers) if has_parts else (whole,)
        found.append(
            Product(
                node=node.name, x=node.input[0], y=node.output[0], slots=slots,
                element=weight.element,
                is_last=node.output[0] in ends or whole.module.endswith("lm_head"),
            )
        )  # fmt: skip
    return found


def module_slots(model: onnx.ModelProto) -> tuple[Slot, ...]:
    """The slots that the modules of a model with a weight have, or could have."""
    return tuple(slot for product in products(model) for slot in product.slots)


def fused_experts(model: onnx.ModelProto) -> tuple[str, ...]:
    """The operators of a model that are all experts of a layer at once, as ``name, operator``."""
    found = (n for n in model.graph.node if n.domain == CONTRIB_DOMAIN and n.op_type in _EXPERTS)
    return tuple(f"{n.name or n.output[0]}, {n.op_type}" for n in found)


def choose_products(
    known: Sequence[Product], targets: Iterable[str] | None, experts: Sequence[str] = ()
) -> list[tuple[Product, tuple[Slot, ...]]]:
    """Products with those of their slots that `targets` ask for.

    `targets` are shell patterns of modules, or of the last part of their names; without any, all
    but the model's head and convolutions of several groups are taken. One that matches nothing
    raises ArgumentError, which tells who may have meant `experts` that these are one operator.
    """
    patterns = None if targets is None else tuple(targets)
    names = [m for p in known for m in p.modules]
    if patterns is not None:
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in names):
                raise _no_match(pattern, names, experts)
        if not patterns:
            raise ArgumentError("targets names nothing", hint="give modules such as 'q_proj'")
    chosen = []
    for product in known:
        slots = tuple(
            s for s in product.slots
            if (not product.is_last and s.groups == 1 if patterns is None
                else any(_matches(s.module, p) for p in patterns))
        )  # fmt: skip
        if slots:
            chosen.append((product, slots))
    if not chosen:
        raise UnsupportedError(
            "the model has no product with a weight that could take an adapter",
            hint="MatMul, Gemm and MatMulNBits with a weight of two dimensions can, and Conv",
        )
    return chosen


def _no_match(pattern: str, names: Sequence[str], experts: Sequence[str]) -> ArgumentError:
    """The error for a pattern that matches none of the names of modules."""
    last = sorted({name.rpartition(".")[2] for name in names})
    hint = f"there are {', '.join(last[:12])}" if last else "the model has none"
    what = f"targets: {pattern!r} matches no product with a weight"
    if experts and any(part in pattern for part in _OF_EXPERTS):
        what += f"; the experts of {experts[0]}, are one operator, which no adapter fits into"
        hint += "; or export the model with its experts as products, as torch's own exporter does"
    return ArgumentError(what, hint=hint)


def slots_of(model: onnx.ModelProto) -> dict[str, Slot]:
    """The slots that a model has already, by module."""
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input
    }
    pairs = [(n.removesuffix(_DOWN), s) for n, s in shapes.items() if n.endswith(_DOWN)]
    return {m: _known_slot(m, s, shapes[m + _UP]) for m, s in pairs if m + _UP in shapes}


def _known_slot(module: str, down: Sequence[int], up: Sequence[int]) -> Slot:
    """A slot by the shapes of its inputs, in which a rank is 0."""
    if len(down) == 2:
        return Slot(module, down[0], up[1])
    return Slot(module, down[1], up[0], tuple(down[2:]))


def has_factors(model: onnx.ModelProto) -> bool:
    """True if the slots of a model take factors, too."""
    return any(v.name.endswith(_FACTOR) for v in model.graph.input)


def slot_inputs(model: onnx.ModelProto) -> dict[str, TensorInfo]:
    """The inputs that adapters fill, by name, as a session of the model would tell them."""
    found = {}
    for slot in slots_of(model).values():
        names = (slot.down, slot.up, slot.factor)
        for value in (v for v in model.graph.input if v.name in names):
            kind = value.type.tensor_type
            shape = tuple(d.dim_param or d.dim_value for d in kind.shape.dim)
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[value.name] = TensorInfo(value.name, shape, dtype, dtype.name)
    return found


def add_slots(
    model: onnx.ModelProto,
    chosen: Sequence[tuple[Product, tuple[Slot, ...]]],
    *,
    factors: bool = False,
) -> None:
    """Give a model slots, in place; only nodes, inputs and first values are added."""
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
            nodes += _extend(node, *wanted[node.name], factors=factors)
    for product, slots in chosen:
        for slot in slots:
            _declare_slot(model.graph, slot, product.element, factors=factors)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def rename_slots(model: onnx.ModelProto) -> None:
    """Give what slots have added other names, in place, so that the model takes slots again."""
    graph = model.graph
    ends = {v.name for v in (*graph.input, *graph.output)}

    def named(name: str) -> str:
        return f"kept/{name}" if _ADDED.search(name) and name not in ends else name

    for node in graph.node:
        node.name = named(node.name)
        node.input[:] = map(named, node.input)
        node.output[:] = map(named, node.output)
    for value in (*graph.initializer, *graph.value_info):
        value.name = named(value.name)


def _declare_slot(graph: onnx.GraphProto, slot: Slot, element: int, *, factors: bool) -> None:
    """Declare the inputs of a slot with first values that change nothing."""
    rank = f"{RANK}/{slot.module}"  # a size of its own: ranks differ, and slots may stay empty
    for name, shape in zip((slot.down, slot.up), slot.shapes(0), strict=True):
        share = rank if slot.groups == 1 or name == slot.down else f"{rank}/group"
        _declare(graph, name, [d or share for d in shape], element)
    if factors:
        if slot.kernel:
            raise UnsupportedError(
                f"{slot.module} is a convolution, and DoRA is made for products",
                hint="leave it out of targets, or dora=True out",
            )
        _declare(graph, slot.factor, [slot.rows], element)


def _extend(
    node: onnx.NodeProto, product: Product, slots: Sequence[Slot], *, factors: bool
) -> Iterator[onnx.NodeProto]:
    """The nodes after a product that add what its adapters compute; the product is renamed."""
    y, taken = product.y, {slot.module for slot in slots}
    node.output[0] = f"{y}/base"
    parts = []
    for slot in product.slots:
        path = _path(product, slot)
        if slot.module not in taken:  # columns of a packed result that have no adapter
            yield from _zero_columns(product, slot, path)
        elif slot.kernel:
            yield from _convolutions(node, product, slot, path)
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
    whole = f"{y}/sum" if factors else y
    yield helper.make_node("Add", [f"{y}/base", change], [whole], f"{product.node}/lora/Add")
    if factors:
        yield from _multiply(node, product, taken, whole)


def _path(product: Product, slot: Slot) -> str:
    """How the names of the nodes of a slot begin."""
    return f"{product.node}/{slot.module.rpartition('.')[2]}"


def _convolutions(
    node: onnx.NodeProto, product: Product, slot: Slot, path: str
) -> Iterator[onnx.NodeProto]:
    """A convolution with A as with the weight of `node`, and one with B of windows of one number.

    A reads all channels, B those of its group, as in PEFT.
    """
    down = helper.make_node(
        "Conv", [product.x, slot.down], [f"{path}/lora_A"], f"{path}/lora_A/Conv"
    )
    down.attribute.extend(a for a in node.attribute if a.name != "group")
    yield down
    yield helper.make_node(
        "Conv", [f"{path}/lora_A", slot.up], [f"{path}/lora_B"], f"{path}/lora_B/Conv",
        group=slot.groups,
    )  # fmt: skip


def _multiply(
    node: onnx.NodeProto, product: Product, taken: Collection[str], whole: str
) -> Iterator[onnx.NodeProto]:
    """Nodes that multiply a result with its factors, but for the bias that is in it.

    With factors c a result y with the bias b becomes y c + b (1 - c): at first y + 0.
    """
    path, stem, parts = product.node, f"{product.node}/lora/factor", []
    for slot in product.slots:
        name = slot.factor
        if slot.module not in taken:
            name = f"{_path(product, slot)}/factor"
            yield _ones(name, (slot.rows,), product.element)
        parts.append(name)
    factor = parts[0]
    if len(parts) > 1:
        factor = stem
        yield helper.make_node("Concat", parts, [factor], f"{stem}/Concat", axis=0)
    bias = _bias(node)
    scaled = f"{stem}/scaled" if bias else product.y
    yield helper.make_node("Mul", [whole, factor], [scaled], f"{path}/lora/Mul")
    if bias:
        yield _ones(f"{stem}/one", (), product.element)
        yield helper.make_node("Sub", [f"{stem}/one", factor], [f"{stem}/rest"], f"{stem}/Sub")
        yield helper.make_node("Mul", [bias, f"{stem}/rest"], [f"{stem}/bias"], f"{stem}/Mul")
        yield helper.make_node(
            "Add", [scaled, f"{stem}/bias"], [product.y], f"{path}/lora/factor/Add"
        )


def _bias(node: onnx.NodeProto) -> str:
    """The name of what a product adds to its result; empty if nothing."""
    place = {"Gemm": 2, "MatMulNBits": 5}.get(node.op_type, len(node.input))
    return str(node.input[place]) if place < len(node.input) else ""


def _ones(name: str, shape: Sequence[int], element: int) -> onnx.NodeProto:
    """A node that makes ones."""
    value = helper.make_tensor(name, element, shape, [1.0] * math.prod(shape))
    return helper.make_node("Constant", [], [name], name, value=value)


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
    """An input whose first value has ones, or no elements if a size has a name."""
    graph.input.append(helper.make_tensor_value_info(name, element, shape))
    sizes = [0 if isinstance(d, str) else d for d in shape]
    graph.initializer.append(helper.make_tensor(name, element, sizes, [1.0] * math.prod(sizes)))


def _readers(nodes: Iterable[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            found.setdefault(name, []).append(node)
    return found


@dataclass(frozen=True)
class _Weight:
    """The weight that a node multiplies with: its slot, without a name, and its element type."""

    slot: Slot
    element: int


def _weight(node: onnx.NodeProto, tensors: Mapping[str, TensorProto]) -> _Weight | None:
    """The weight of a product or a convolution; None for any other node."""
    settings = {a.name: a for a in node.attribute}
    if node.op_type == "MatMulNBits" and node.domain == CONTRIB_DOMAIN:
        scales = tensors.get(node.input[2])
        element = scales.data_type if scales is not None else TensorProto.FLOAT
        return _Weight(Slot("", settings["K"].i, settings["N"].i), element)
    if node.op_type not in ("MatMul", "Gemm", "Conv") or node.domain not in ("", "ai.onnx"):
        return None
    weight = tensors.get(node.input[1])
    if weight is None or weight.data_type not in _REAL:
        return None
    sizes = list(weight.dims)
    if node.op_type == "Conv":
        groups = settings["group"].i if "group" in settings else 1
        slot = Slot("", sizes[1] * groups, sizes[0], tuple(sizes[2:]), groups)
        return _Weight(slot, weight.data_type)
    if len(sizes) != 2 or ("transA" in settings and settings["transA"].i):
        return None
    if "transB" in settings and settings["transB"].i:
        sizes.reverse()
    return _Weight(Slot("", *sizes), weight.data_type)


def _nodes_with_weight(
    nodes: Iterable[onnx.NodeProto], tensors: Mapping[str, TensorProto]
) -> Iterator[tuple[onnx.NodeProto, _Weight]]:
    """The products and convolutions that have a weight, but for those of slots."""
    for node in nodes:
        weight = _weight(node, tensors)
        if weight is not None and not node.input[1].endswith((_DOWN, _UP)):
            yield node, weight


def _wrapper(nodes: Sequence[onnx.NodeProto], tensors: Mapping[str, TensorProto]) -> str:
    """How the names of all modules begin that a language model has within another module.

    Who exports one often writes a module around it, which PEFT does not know.
    """
    heads = [m for m in (_path_of(n) for n in nodes) if m.endswith(".lm_head")]
    stem = heads[0].removesuffix("lm_head") if heads else ""
    others = (_module(n, tensors) for n, _ in _nodes_with_weight(nodes, tensors))
    return stem if all(m.startswith(stem) for m in others) else ""


def _path_of(node: onnx.NodeProto) -> str:
    """The module that a node's metadata or its name tell; empty if neither does."""
    path = node.name.strip("/").split("/")
    return module_of(node) or ".".join(path[:-1])


def _module(node: onnx.NodeProto, tensors: Mapping[str, TensorProto]) -> str:
    """The name of the module that a product is of, from the node's name or its weight's."""
    if module := module_of(node):
        return module
    path = node.name.strip("/").split("/")
    if len(path) > 1 and path[-1].startswith((node.op_type, "MatMul")):
        return ".".join(path[:-1])
    weight = node.input[1]
    if weight.endswith(".weight"):
        return str(weight.removesuffix(".weight").removesuffix(".MatMul"))
    return str(node.name.strip("/").replace("/", ".") or node.output[0])


def _weights_by_module(
    nodes: Iterable[onnx.NodeProto], tensors: Mapping[str, TensorProto]
) -> dict[str, set[str]]:
    """The names of the weights of each module; torch.nn.MultiheadAttention has two, for one."""
    found: dict[str, set[str]] = {}
    for node, _ in _nodes_with_weight(nodes, tensors):
        found.setdefault(_module(node, tensors), set()).add(node.input[1])
    return found


def _own_part(node: onnx.NodeProto, module: str) -> str:
    """The end of a product's name, by its weight or its node, where a module has several."""
    weight = node.input[1]
    if weight.startswith(f"{module}."):
        return str(weight.removeprefix(f"{module}.").removesuffix(".weight"))
    return str(node.name.rpartition("/")[2] or node.output[0])


def _parts(
    whole: Slot, y: str, readers: Mapping[str, Sequence[onnx.NodeProto]]
) -> tuple[Slot, ...]:
    """The slots of a product: one, or one for each module that is packed in its weight."""
    stem, _, last = whole.module.rpartition(".")
    sizes = {}
    if last == "qkv_proj":
        sizes = _attention_widths(y, whole.rows, readers)
    elif last == "gate_up_proj" and whole.rows % 2 == 0:
        sizes = dict.fromkeys(_PACKED_HALVES, whole.rows // 2)
    if not sizes:
        return (whole,)
    before = f"{stem}." if stem else ""
    return tuple(Slot(f"{before}{n}_proj", whole.columns, size) for n, size in sizes.items())


def _attention_widths(
    y: str, rows: int, readers: Mapping[str, Sequence[onnx.NodeProto]]
) -> dict[str, int]:
    """The widths of queries, keys and values, of the attention that reads them in one."""
    nodes = list(readers.get(y, ()))
    while nodes:
        node = nodes.pop()
        if node.op_type in ("Add", "Split"):  # the bias; values, where queries are normalised
            nodes += readers.get(node.output[-1], ())
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
