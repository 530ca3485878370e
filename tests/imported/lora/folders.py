"""Folders of language models, made by seed: the layout that onnxruntime-genai's builder writes.

Weights are random, shapes and names are those of the real ones. What a folder computes can be
computed again from `Folder.weights`, which has the numbers that the stored bits stand for.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
BLOCK = 32


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a model, and how its family differs from Llama."""

    family: str = "llama"
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    shared: int = 2
    head: int = 16
    inner: int = 96
    words: int = 160
    is_tied: bool = False
    bits: int | None = None  # of the weights; None: real numbers
    points: bool = False  # with zero points beside the scales
    dtype: str = "float32"
    epsilon: float = 1e-5
    window: int = -1
    softcap: float = 0.0
    places: int = 512
    experts: int = 0  # of each layer, in one operator as gpt-oss has them; 0: none
    chosen: int = 2  # of the experts, for each token
    limit: float = 7.0  # of what experts' gates read

    @property
    def has_bias(self):
        return self.family == "qwen2"

    @property
    def is_packed(self):
        """One product makes queries, keys and values; Qwen3 normalises them apart."""
        return self.family != "qwen3"


TINY = Shape()
SMOLLM2 = Shape(
    layers=30,
    hidden=576,
    heads=9,
    shared=3,
    head=64,
    inner=1536,
    words=49152,
    is_tied=True,
    places=8192,
)
QWEN3 = Shape(
    family="qwen3",
    layers=28,
    hidden=1024,
    heads=16,
    shared=8,
    head=128,
    inner=3072,
    words=151936,
    is_tied=True,
    epsilon=1e-6,
    places=40960,
)


@dataclass(frozen=True)
class Folder:
    """A folder that was written, and the weights as real numbers by the name of their module."""

    path: Path
    shape: Shape
    weights: dict = field(repr=False)

    @property
    def model(self):
        return self.path / "model.onnx"


def write_folder(path, shape=TINY, seed=0):
    """Write model.onnx, model.onnx.data and genai_config.json; the `Folder`."""
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    graph = _Graph(path / "model.onnx.data", shape, np.random.default_rng(seed))
    graph.run()
    onnx.save(graph.model(), path / "model.onnx")
    (path / "genai_config.json").write_text(json.dumps(_config(shape), indent=1))
    return Folder(path, shape, graph.weights)


def _config(shape):
    cache = {
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    }
    present = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": shape.head,
        "hidden_size": shape.hidden,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **cache},
        "outputs": {"logits": "logits", **present},
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.shared,
    }
    model = {
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "type": shape.family,
        "context_length": shape.places,
        "vocab_size": shape.words,
        "decoder": decoder,
    }
    search = {"do_sample": False, "max_length": shape.places, "past_present_share_buffer": False}
    return {"model": model, "search": search}


def quantize(weight, bits, points, real):
    """A matrix (N, K) in blocks along K: bytes, scales, zero points or None, and its numbers."""
    rows, columns = weight.shape
    blocks = -(-columns // BLOCK)
    padded = np.zeros((rows, blocks * BLOCK), np.float32)
    padded[:, :columns] = weight
    block = padded.reshape(rows, blocks, BLOCK)
    top = (1 << bits) - 1
    if points:
        low, high = np.minimum(block.min(-1), 0), np.maximum(block.max(-1), 0)
        scales = np.maximum((high - low) / top, 1e-8).astype(np.float32)
        zeros = np.clip(np.rint(-low / scales), 0, top)
    else:
        scales = (np.maximum(np.abs(block).max(-1), 1e-8) / (1 << (bits - 1))).astype(np.float32)
        zeros = np.full((rows, blocks), 1 << (bits - 1))
    scales = scales.astype(real).astype(np.float32)
    levels = np.clip(np.rint(block / scales[..., None]) + zeros[..., None], 0, top)
    numbers = ((levels - zeros[..., None]) * scales[..., None]).astype(np.float32)
    packed = _pack(levels.astype(np.uint8), bits)
    stored = _pack(zeros.astype(np.uint8), bits) if points else None
    return packed, scales, stored, numbers.reshape(rows, -1)[:, :columns]


def _pack(levels, bits):
    """Whole numbers along the last axis, two of 4 bits in a byte, the first in the lower half."""
    if bits == 8:
        return levels
    if levels.shape[-1] % 2:
        levels = np.concatenate([levels, np.zeros_like(levels[..., :1])], -1)
    return levels[..., ::2] | (levels[..., 1::2] << 4)


class _Graph:
    """The nodes and tensors of a model; large tensors go to the data file as they are made."""

    def __init__(self, data, shape, rng):
        self.shape, self.rng, self.weights = shape, rng, {}
        self.nodes, self.tensors, self._end = [], [], 0
        self._data = data
        self._file = open(data, "wb")  # noqa: SIM115  # closed in model()
        self.real = np.dtype(shape.dtype)
        self._kind = TensorProto.FLOAT16 if shape.dtype == "float16" else TensorProto.FLOAT

    def add(self, op, inputs, outputs, name, domain="", **attrs):
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attrs))
        return outputs[0]

    def tensor(self, name, array):
        """A tensor in the data file, at a multiple of a page if it is large."""
        array = np.ascontiguousarray(array)
        align = 4096 if array.nbytes >= 4096 else 16
        start = -(-self._end // align) * align
        self._file.seek(start)
        self._file.write(array.tobytes())
        self._end = start + array.nbytes
        proto = numpy_helper.from_array(array[:0] if array.ndim else array, name)
        del proto.dims[:]
        proto.dims.extend(array.shape)
        proto.ClearField("raw_data")
        proto.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", self._data.name),
            ("offset", start),
            ("length", array.nbytes),
        ):
            proto.external_data.add(key=key, value=str(value))
        self.tensors.append(proto)
        return name

    def constant(self, name, array):
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def draw(self, *shape, scale=None):
        scale = scale or shape[-1] ** -0.5
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def norm(self, module):
        weight = (1 + 0.1 * self.rng.standard_normal(self.shape.hidden)).astype(self.real)
        self.weights[module] = weight.astype(np.float32)
        return self.tensor(f"{module}.weight", weight)

    def product(self, module, x, rows, columns, y=None):
        """A product with a weight of its own (rows, columns), in the model's form of weights."""
        return self.multiply(module, x, self.draw(rows, columns), y)

    def multiply(self, module, x, weight, y=None):
        path, bits = "/" + module.replace(".", "/").replace("layers/", "layers."), self.shape.bits
        y = y or f"{path}/MatMul/output_0"
        if bits is None:
            stored = weight.astype(self.real)
            self.weights[module] = stored.astype(np.float32)
            w = self.tensor(f"{module}.MatMul.weight", stored.T)
            return self.add("MatMul", [x, w], [y], f"{path}/MatMul")
        packed, scales, points, numbers = quantize(weight, bits, self.shape.points, self.real)
        self.weights[module] = numbers
        stem = f"{module}.MatMul.weight_Q{bits}"
        inputs = [
            x,
            self.tensor(stem, packed),
            self.tensor(f"{module}.MatMul.weight_scales", scales.astype(self.real)),
        ]
        if points is not None:
            inputs.append(self.tensor(f"{module}.MatMul.weight_zero_points", points))
        return self.add(
            "MatMulNBits",
            inputs,
            [y],
            f"{path}/MatMul_Q{bits}",
            MS,
            K=weight.shape[1],
            N=weight.shape[0],
            bits=bits,
            block_size=BLOCK,
            accuracy_level=0,
        )

    def run(self):
        s = self.shape
        self._mask()
        table = self.draw(s.words, s.hidden, scale=0.5)
        x, total = self._embed(table), None
        self._angles()
        for i in range(s.layers):
            x, total = self._layer(i, x, total)
        y = self._skip_norm(f"model.layers.{s.layers}.final_norm_layernorm", x, total, ends=True)[0]
        self.multiply("lm_head", y, table if s.is_tied else self.draw(s.words, s.hidden), "logits")

    def _embed(self, table):
        s = self.shape
        if s.bits is None or not s.is_tied:
            stored = table.astype(self.real)
            self.weights["model.embed_tokens"] = stored.astype(np.float32)
            name = self.tensor("model.embed_tokens.weight", stored)
            return self.add(
                "Gather", [name, "input_ids"], ["embedded"], "/model/embed_tokens/Gather"
            )
        _, _, _, numbers = quantize(table, s.bits, s.points, self.real)
        self.weights["model.embed_tokens"] = numbers
        stem = "lm_head.MatMul.weight"
        flat = self.constant("flat", np.asarray([s.words, -1]))
        rows = self.add(
            "Reshape", [f"{stem}_Q{s.bits}", flat], ["rows"], "/model/embed_tokens/Rows"
        )
        inputs = [rows, "input_ids", f"{stem}_scales"]
        inputs += [f"{stem}_zero_points"] if s.points else []
        return self.add(
            "GatherBlockQuantized",
            inputs,
            ["embedded"],
            "/model/embed_tokens/Gather",
            MS,
            bits=s.bits,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def _mask(self):
        """The length of each text, and of the longest, from the mask."""
        at = "/model/attn_mask_reformat/attn_mask_subgraph"
        self.constant("one_axis", np.asarray([1]))
        self.constant("one", np.asarray(1))
        self.add(
            "ReduceSum", ["attention_mask", "one_axis"], ["counts"], f"{at}/ReduceSum", keepdims=0
        )
        self.add("Sub", ["counts", "one_axis"], ["last"], f"{at}/Sub")
        self.add("Cast", ["last"], ["seqlens_k"], f"{at}/Sub/Cast", to=TensorProto.INT32)
        self.add("Shape", ["attention_mask"], ["mask_shape"], f"{at}/Shape")
        self.add("Gather", ["mask_shape", "one"], ["width"], f"{at}/Gather", axis=0)
        self.add("Cast", ["width"], ["total_seq_len"], f"{at}/Gather/Cast", to=TensorProto.INT32)

    def _angles(self):
        s = self.shape
        rates = 1.0 / 10000.0 ** (np.arange(0, s.head, 2) / s.head)
        angles = np.outer(np.arange(s.places), rates)
        for name, table in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            self.weights[name] = table.astype(self.real).astype(np.float32)
            self.tensor(f"{name}_cache", table.astype(self.real))

    def _layer(self, i, x, total):
        s, at = self.shape, f"model.layers.{i}"
        y, total = self._skip_norm(f"{at}.input_layernorm", x, total)
        o = self._attention(i, f"{at}.attn", y)
        y, total = self._skip_norm(f"{at}.post_attention_layernorm", o, total)
        if s.experts:
            return self._experts(i, f"{at}.moe", y), total
        gate = self.product(f"{at}.mlp.gate_proj", y, s.inner, s.hidden)
        up = self.product(f"{at}.mlp.up_proj", y, s.inner, s.hidden)
        path = f"/model/layers.{i}/mlp"
        half = self.add(
            "Sigmoid", [gate], [f"{path}/act_fn/Sigmoid/output_0"], f"{path}/act_fn/Sigmoid"
        )
        act = self.add("Mul", [gate, half], [f"{path}/act_fn/Mul/output_0"], f"{path}/act_fn/Mul")
        inner = self.add("Mul", [act, up], [f"{path}/Mul/output_0"], f"{path}/Mul")
        return self.product(f"{at}.mlp.down_proj", inner, s.hidden, s.inner), total

    def _experts(self, i, at, x):
        """Experts in one operator, whose gates stand beside what they gate."""
        s, path = self.shape, f"/model/layers.{i}/moe"
        raw = self.product(f"{at}.router", x, s.experts, s.hidden)
        bias = self._stored(f"{at}.router.bias", self.draw(s.experts, scale=0.1))
        y = f"{path}/router/Add/output_0"
        self.add("Add", [raw, bias], [y], f"{path}/router/Add")
        flat = self.constant(f"{path}/flat", np.asarray([-1, s.experts]))
        scores = f"{path}/router/Reshape/output_0"
        self.add("Reshape", [y, flat], [scores], f"{path}/router/Reshape")
        operands, attrs = [x, scores], {}
        for name, rows, columns in (
            ("gate_up_proj", 2 * s.inner, s.hidden), ("down_proj", s.hidden, s.inner),
        ):  # fmt: skip
            operands += self._expert_weights(f"{at}.experts.{name}", rows, columns)
            drawn = self.draw(s.experts, rows, scale=0.1)
            operands.append(self._stored(f"{at}.experts.{name}.bias", drawn))
        if s.bits is not None:
            attrs = {"expert_weight_bits": s.bits, "block_size": BLOCK}
            points = [f"{at}.experts.{n}.zero_points" for n in ("gate_up_proj", "down_proj")]
            operands += ["", "", "", *points, ""] if s.points else []
        kind = "MoE" if s.bits is None else "QMoE"
        return self.add(
            kind, operands, [f"{path}/{kind}/output_0"], f"{path}/{kind}", MS, k=s.chosen,
            activation_type="swiglu", activation_alpha=1.702, activation_beta=1.0,
            normalize_routing_weights=1, swiglu_fusion=1, swiglu_limit=s.limit,
            use_sparse_mixer=0, **attrs,
        )  # fmt: skip

    def _stored(self, name, array):
        """A tensor of real numbers, which is known by its name afterwards."""
        stored = array.astype(self.real)
        self.weights[name] = stored.astype(np.float32)
        return self.tensor(name, stored)

    def _expert_weights(self, module, rows, columns):
        """The operands of a weight (expert, row, column): itself, or bytes and scales."""
        s = self.shape
        drawn = self.draw(s.experts, rows, columns)
        if s.bits is None:
            return [self._stored(f"{module}.weight", drawn)]
        parts = [quantize(w, s.bits, s.points, self.real) for w in drawn]
        packed, scales, points, numbers = zip(*parts, strict=True)
        self.weights[f"{module}.weight"] = np.stack(numbers)
        flat = np.stack(packed).reshape(s.experts, rows, -1)[..., : columns * s.bits // 8]
        if s.points:
            self.tensor(f"{module}.zero_points", np.stack(points))
        return [
            self.tensor(f"{module}.qweight", flat),
            self.tensor(f"{module}.scales", np.stack(scales).astype(self.real)),
        ]

    def _skip_norm(self, module, x, total, ends=False):
        """The normalised sum of `x` and what went before, and the sum itself."""
        path, weight = (
            "/" + module.replace(".", "/").replace("layers/", "layers."),
            self.norm(module),
        )
        y, epsilon = f"{path}/output_0", self.shape.epsilon
        if total is None:
            self.add(
                "SimplifiedLayerNormalization",
                [x, weight],
                [y],
                f"{path}/LayerNorm",
                axis=-1,
                epsilon=epsilon,
                stash_type=1,
            )
            return y, x
        outputs = [y] if ends else [y, "", "", f"{path}/output_3"]
        self.add(
            "SkipSimplifiedLayerNormalization",
            [total, x, weight],
            outputs,
            f"{path}/SkipLayerNorm",
            MS,
            epsilon=epsilon,
        )
        return y, outputs[-1]

    def _attention(self, i, at, x):
        s, path = self.shape, f"/model/layers.{i}/attn"
        widths = {"q": s.heads * s.head, "k": s.shared * s.head, "v": s.shared * s.head}
        if s.is_packed:
            qkv = self.product(f"{at}.qkv_proj", x, sum(widths.values()), s.hidden)
            if s.has_bias:
                bias = self.draw(sum(widths.values()), scale=0.1)
                self.weights[f"{at}.qkv_proj.bias"] = bias
                name = self.tensor(f"{at}.qkv_proj.Add.bias", bias.astype(self.real))
                qkv = self.add(
                    "Add", [qkv, name], [f"{path}/qkv_proj/Add/output_0"], f"{path}/qkv_proj/Add"
                )
            operands = [qkv, "", ""]
        else:
            operands = [self.product(f"{at}.{n}_proj", x, w, s.hidden) for n, w in widths.items()]
            operands[:2] = [
                self._head_norm(f"{at}.{n}_norm", v, widths[n])
                for n, v in zip("qk", operands, strict=False)
            ]
        past = [f"past_key_values.{i}.{n}" for n in ("key", "value")]
        y = f"{path}/GroupQueryAttention/output_0"
        self.add(
            "GroupQueryAttention",
            [*operands, *past, "seqlens_k", "total_seq_len", "cos_cache", "sin_cache"],
            [y, f"present.{i}.key", f"present.{i}.value"],
            f"{path}/GroupQueryAttention",
            MS,
            num_heads=s.heads,
            kv_num_heads=s.shared,
            scale=s.head**-0.5,
            do_rotary=1,
            rotary_interleaved=0,
            softcap=s.softcap,
            local_window_size=s.window,
        )
        return self.product(f"{at}.o_proj", y, s.hidden, s.heads * s.head)

    def _head_norm(self, module, x, width):
        s, path = self.shape, "/" + module.replace(".", "/").replace("layers/", "layers.")
        weight = (1 + 0.1 * self.rng.standard_normal(s.head)).astype(self.real)
        self.weights[module] = weight.astype(np.float32)
        names = [f"{path}/{n}/output_0" for n in ("Reshape_1", "Norm", "Reshape_2")]
        split = self.constant(f"{path}/split", np.asarray([0, 0, -1, s.head]))
        whole = self.constant(f"{path}/whole", np.asarray([0, 0, width]))
        self.add("Reshape", [x, split], names[:1], f"{path}/Reshape_1")
        scale = self.tensor(f"{module}.layernorm.weight", weight)
        self.add(
            "SimplifiedLayerNormalization",
            [names[0], scale],
            names[1:2],
            f"{path}/SimplifiedLayerNormalization",
            axis=-1,
            epsilon=s.epsilon,
            stash_type=1,
        )
        return self.add("Reshape", [names[1], whole], names[2:], f"{path}/Reshape_2")

    def model(self):
        self._file.close()
        s, whole, real = self.shape, TensorProto.INT64, self._kind
        info = helper.make_tensor_value_info

        def cache(stem, rows):
            return [
                info(f"{stem}.{i}.{n}", real, ["batch_size", s.shared, rows, s.head])
                for i in range(s.layers)
                for n in ("key", "value")
            ]

        inputs = [
            info("input_ids", whole, ["batch_size", "sequence_length"]),
            info("attention_mask", whole, ["batch_size", "total_sequence_length"]),
            *cache("past_key_values", "past_sequence_length"),
        ]
        outputs = [
            info("logits", real, ["batch_size", "sequence_length", s.words]),
            *cache("present", "total_sequence_length"),
        ]
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs, self.tensors)
        opsets = [helper.make_opsetid("", 22), helper.make_opsetid(MS, 1)]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=10, producer_name="onnxruntime-genai"
        )


def with_bits(shape, bits, *, points=False):
    return replace(shape, bits=bits, points=points)
