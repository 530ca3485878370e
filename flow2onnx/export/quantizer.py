"""Quantizing: the runtime's own quantizer, asked for what serves well on any provider."""

import io
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from flow2onnx.errors import BundleError, ProviderError
from flow2onnx.export.calibration import Batch
from flow2onnx.export.comparison import Counts
from flow2onnx.graph.schemas import PRODUCTS
from flow2onnx.onnx_io.parse import float_initializers, prepare_for_quantizer
from flow2onnx.onnx_io.read import ModelFile, open_model

__all__ = ["quantize_dynamically", "quantize_statically"]

# Products, and what only moves or chooses numbers between them. Softmax and the normalizations
# stay in float32: eight bits for what they make would decide answers by a coin.
_STATIC = (
    "Add", "AveragePool", "Clip", "Concat", "Conv", "ConvTranspose", "Flatten", "Gather", "Gemm",
    "GlobalAveragePool", "LeakyRelu", "MatMul", "MaxPool", "Mul", "Pad", "Relu", "Reshape",
    "Resize", "Sigmoid", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
_DYNAMIC = ("Conv", "Gather", "Gemm", "MatMul")
_WHY_KIND = "kept in float32, where eight bits decide too much"
_WHY_QUANTIZER = "the quantizer leaves it: an operand is no constant, or not quantized"
_WHY_DYNAMIC = "dynamic quantization is for products with constants"
_DECIDING = ("LogSoftmax", "Softmax")
_ELEMENTWISE = ("Add", "Cast", "Div", "Identity", "Mul", "Reshape", "Sub", "Transpose", "Where")
_WHY_SCORES = "scores before a softmax, which masks give a range of their own"
_INTEGER = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}


def quantize_statically(
    source: Path,
    target: Path,
    batches: Sequence[Batch],
    method: str,
    fixed: Sequence[str],
    *,
    is_symmetric: bool = False,
) -> Counts:
    """Write a model with QuantizeLinear and DequantizeLinear around what is done in int8.

    Weights symmetric and by channel, activations by the ranges that they have on `batches`.
    `fixed` nodes, by name, stay as they are. TensorRT takes only activations that are quantized
    symmetrically too. Other weights are of seven bits: x86 processors without VNNI add two products
    of eight bits each in sixteen, where large ones would saturate.
    """
    quantization = _library()
    # histograms are of batches of one size
    scores = _scores_before_softmax(open_model(source))
    used = [b for b in batches if method == "minmax" or _shapes(b) == _shapes(batches[0])]
    named = {
        "minmax": quantization.CalibrationMethod.MinMax,
        "entropy": quantization.CalibrationMethod.Entropy,
        "percentile": quantization.CalibrationMethod.Percentile,
    }
    with _quiet(source):
        quantization.quantize_static(
            str(_write_plain(source)),
            str(target),
            _reader(quantization, used),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=list(_STATIC),
            per_channel=True,
            reduce_range=not is_symmetric,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            nodes_to_exclude=[*fixed, *scores],
            calibrate_method=named[method],
            extra_options={"ActivationSymmetric": is_symmetric},
            use_external_data_format=_is_large(source),
        )
    _check_scales(target)
    return _static_counts(open_model(source), open_model(target), fixed, scores)


def quantize_dynamically(source: Path, target: Path, fixed: Sequence[str]) -> Counts:
    """Write a model whose products are of int8 weights and inputs quantized at run time."""
    quantization = _library()
    with _quiet(source):
        quantization.quantize_dynamic(
            str(_write_plain(source)),
            str(target),
            op_types_to_quantize=[op for op in _DYNAMIC if op != "Gemm"],
            per_channel=True,
            # the runtime's ConvInteger has no kernel for signed weights
            weight_type=quantization.QuantType.QUInt8,
            nodes_to_exclude=list(fixed),
            use_external_data_format=_is_large(source),
        )
    return _dynamic_counts(open_model(source), open_model(target), fixed)


def _scores_before_softmax(stored: ModelFile) -> list[str]:
    """The nodes between a product and a softmax, by name: masks there have a range of their own.

    With -10000 for what is left out, eight bits would know nothing else.
    """
    makers = {o: n for n in stored.proto.graph.node for o in n.output}
    found: dict[str, None] = {}
    ahead = [n.input[0] for n in stored.proto.graph.node if n.op_type in _DECIDING]
    while ahead:
        node = makers.get(ahead.pop())
        if node is not None and node.op_type in _ELEMENTWISE and node.name not in found:
            found[node.name] = None
            ahead.extend(node.input)
    return list(found)


def _check_scales(path: Path) -> None:
    """Raise for a range that is not finite: nothing sensible comes of it."""
    for name, value in float_initializers(path):
        if name.endswith("_scale") and not np.isfinite(value).all():
            raise BundleError(
                f"the values of {name.removesuffix('_scale')} on the calibration set are not "
                "finite, so that int8 cannot hold them",
                hint='use large numbers in place of infinity, or precision="fp16"',
            )


def _shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [array.shape for array in batch.feeds.values()]


def _library() -> Any:
    try:
        import onnxruntime.quantization as quantization
    except ImportError as error:
        raise ProviderError(
            f"onnxruntime's quantizer cannot be imported: {error}",
            hint=f"pip install {error.name or 'onnxruntime'}",
        ) from error
    return quantization


def _write_plain(source: Path) -> Path:
    """The model without inner types, which would contradict the weights that are turned round."""
    plain = source.with_name("plain.onnx")
    plain.write_bytes(prepare_for_quantizer(source.read_bytes()))
    return plain


def _is_large(source: Path) -> bool:
    return bool(open_model(source).external_files())


def _reader(quantization: Any, batches: Sequence[Batch]) -> Any:
    """The batches as the quantizer asks for them."""

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]  # of a library without types
        def __init__(self) -> None:
            self._left = iter(batches)

        def get_next(self) -> Mapping[str, np.ndarray[Any, Any]] | None:
            batch = next(self._left, None)
            return None if batch is None else dict(batch.feeds)

    return Reader()


@contextmanager
def _quiet(source: Path) -> Iterator[None]:
    """Keep the quantizer's advice to people out of the log, and name the model if it fails."""
    root = logging.getLogger()
    root.addFilter(_is_relevant)
    try:
        # it tells of its progress there; ranges that it cannot divide by are looked for afterwards
        with redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            yield
    except Exception as error:  # of many classes with no common base
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BundleError(
            f"onnxruntime's quantizer cannot quantize {source.stem}: {first}",
            hint='export with precision="fp16", or as it is',
        ) from error
    finally:
        root.removeFilter(_is_relevant)


def _is_relevant(record: logging.LogRecord) -> bool:
    return "pre-processing before quantization" not in record.getMessage()


def _static_counts(
    source: ModelFile, made: ModelFile, fixed: Sequence[str], scores: Sequence[str]
) -> Counts:
    """A node is quantized if it reads, or its result goes through, eight bits."""
    nodes = made.proto.graph.node
    dequantized = {o for n in nodes if n.op_type == "DequantizeLinear" for o in n.output}
    reduced: Counter[str] = Counter()
    left: Counter[tuple[str, str]] = Counter()
    kept = {n.name for n in nodes}
    for node in source.proto.graph.node:
        if node.name in fixed:
            continue
        if node.name not in kept:  # a ReLU that the range of what it reads does already
            reduced[node.op_type] += 1
    for node in nodes:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") or node.name in fixed:
            continue
        if node.input and node.input[0] in dequantized and node.op_type in _STATIC:
            reduced[node.op_type] += 1
            continue
        why = _WHY_QUANTIZER if node.op_type in _STATIC else _WHY_KIND
        left[node.op_type, _WHY_SCORES if node.name in scores else why] += 1
    whole = source.proto.graph.node
    unquantized = {n.name for n in whole if n.op_type not in _STATIC or n.name in scores}
    return Counts(reduced, left, frozenset(unquantized))


def _dynamic_counts(source: ModelFile, made: ModelFile, fixed: Sequence[str]) -> Counts:
    reduced = Counter(_INTEGER[n.op_type] for n in made.proto.graph.node if n.op_type in _INTEGER)
    left: Counter[tuple[str, str]] = Counter()
    whole = Counter(
        "MatMul" if n.op_type == "Gemm" else n.op_type
        for n in source.proto.graph.node
        if n.name not in fixed
    )
    for operator, count in (whole - reduced).items():
        why = _WHY_QUANTIZER if operator in PRODUCTS else _WHY_DYNAMIC
        left[operator, why] += count
    return Counts(reduced, left)
