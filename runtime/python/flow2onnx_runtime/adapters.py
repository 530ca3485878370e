"""Low-rank adapters as files: of ONNX Runtime, ``.onnx_adapter``, and of PEFT, a folder.

Both say the same in other words. A module's product with a weight, y = x W, becomes
y + scale * (x A) B. The runtime's file has A and scale * B under the names of a model's inputs,
``M.lora_A.weight`` and ``M.lora_B.weight``; PEFT's has A and B transposed, and the scale in
``adapter_config.json`` as ``lora_alpha / r``. Of a convolution both files have A as (rank, columns,
*kernel) and B as (rows, rank / groups, 1, …).

DoRA's adapters multiply y with c = m / ‖W + scale * A B‖, by row. PEFT's file has the magnitudes m,
the runtime's the factors c, ``M.lora_factor.weight``; one is made of the other with the weights.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import DTypeLike

from flow2onnx_runtime.adapter_packing import PARTS, join_pairs, split_pair, wholes
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.errors import BundleError, StateError
from flow2onnx_runtime.files import open_file, replace_bytes, replace_folder
from flow2onnx_runtime.json_reader import parse_object
from flow2onnx_runtime.safetensors import load_safetensors, read_header, save_safetensors

__all__ = ["ADAPTER_SUFFIX", "FACTOR", "PEFT_CONFIG", "Adapter", "read_adapter", "write_adapter"]

ADAPTER_SUFFIX = ".onnx_adapter"
_DOWN, _UP, FACTOR = ".lora_A.weight", ".lora_B.weight", ".lora_factor.weight"
_MAGNITUDE = ".lora_magnitude_vector"  # PEFT's; what follows it differs by release
PEFT_CONFIG = "adapter_config.json"
_PEFT_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_REFUSED = ("use_qalora", "lora_bias")  # settings under which A and B are not all
_VERSION = 1
_MARK = b"TORT"  # behind the first four bytes of a file
_PACKED = ("phi3",)  # families whose modules hold several in PEFT, too
# attention as onnxruntime-genai's builder names it; other models have an `attn` of their own
_BUILT = r"\b(model\.layers\.\d+)\.attn\."
_OTHER_NAMES = {"phi": (".attn.o_proj", ".attn.dense")}


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """The pairs (A, B) of an adapter by module: A is (columns, rank), B (rank, rows).

    Of a convolution A is (rank, columns, *kernel), B (rows, rank / groups, 1, …). `scales` are the
    numbers that products with B are multiplied by; 1 where a module has none. One of DoRA has
    `magnitudes`, the norms of its weights, or `factors`, which its results are multiplied by, or
    both; each is (rows).
    """

    pairs: Mapping[str, tuple[Array, Array]]
    scales: Mapping[str, float]
    magnitudes: Mapping[str, Array] = field(default_factory=dict)
    factors: Mapping[str, Array] = field(default_factory=dict)

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of each module's pair."""
        return {module: _rank(a) for module, (a, _) in self.pairs.items()}

    @property
    def is_dora(self) -> bool:
        """True if results are multiplied with factors."""
        return bool(self.magnitudes or self.factors)

    def scale(self, module: str) -> float:
        """The number that a module's product with B is multiplied by."""
        return self.scales.get(module, 1.0)

    def parameters(self) -> dict[str, Array]:
        """The arrays as the runtime feeds them to a model, scales multiplied into B.

        Raises `StateError` for magnitudes without the factors that they stand for.
        """
        if self.magnitudes.keys() - self.factors.keys():
            raise StateError(
                "an adapter of DoRA as PEFT has it is served with factors, which its model's "
                "weights tell",
                hint="flow2onnx lora convert ADAPTER OUTPUT --model FOLDER computes them",
            )
        found = {}
        for module, (a, b) in self.pairs.items():
            scaled = b if self.scale(module) == 1.0 else _times(b, self.scale(module))
            found[module + _DOWN] = np.ascontiguousarray(a)
            found[module + _UP] = np.ascontiguousarray(scaled)
            if module in self.factors:
                found[module + FACTOR] = np.ascontiguousarray(self.factors[module])
        return found

    def astype(self, dtype: DTypeLike) -> "Adapter":
        """The adapter in another element type; scales are multiplied in before, so not lost."""
        whole = {n: a.astype(dtype) for n, a in self.parameters().items()}
        return _adapter_of(whole, "the adapter")

    def named_for(self, modules: Mapping[str, int] | Collection[str]) -> "Adapter":
        """The adapter with its modules named as a model names them.

        Model folders say ``attn`` where PEFT says ``self_attn``. Where `modules` says how many rows
        each has, a pair of several that are packed in one is taken apart. Raises `StateError` for
        an adapter of another model.
        """
        known = {_plain(m): m for m in modules}
        if isinstance(modules, Mapping) and any(_plain(m) not in known for m in self.pairs):
            apart = self._taken_apart({_plain(m): rows for m, rows in modules.items()})
            return apart.named_for(list(modules))
        lost = [m for m in self.pairs if m not in modules and _plain(m) not in known]
        if lost:
            raise StateError(
                f"the adapter is for another model: here is no module {lost[0]}",
                hint=f"the model has {', '.join(sorted(modules)[:4])}, …",
            )
        names = {m: m if m in modules else known[_plain(m)] for m in self.pairs}
        return replace(
            self,
            pairs={names[m]: pair for m, pair in self.pairs.items()},
            scales={names[m]: self.scale(m) for m in self.pairs},
            magnitudes={names[m]: v for m, v in self.magnitudes.items()},
            factors={names[m]: v for m, v in self.factors.items()},
        )

    def _taken_apart(self, rows: Mapping[str, int]) -> "Adapter":
        """The adapter with pairs of parts in place of those of wholes, by plain names."""
        found: dict[str, dict[str, Any]] = {n: {} for n in ("pairs", "scales", "m", "c")}
        for module, pair in self.pairs.items():
            stem, _, last = _plain(module).rpartition(".")
            parts = [f"{stem}.{p}" if stem else p for p in PARTS.get(last, ())]
            sizes = [rows[p] for p in parts if p in rows]
            if not parts or len(sizes) != len(parts) or sum(sizes) != _rows(pair[1]):
                parts, sizes = [module], [_rows(pair[1])]
            ends = np.cumsum(sizes)[:-1]
            pairs = [pair] if len(parts) == 1 else split_pair(pair, sizes)
            found["pairs"] |= dict(zip(parts, pairs, strict=True))
            found["scales"] |= dict.fromkeys(parts, self.scale(module))
            for key, values in (("m", self.magnitudes), ("c", self.factors)):
                if module in values:
                    split = np.split(values[module], ends)
                    found[key] |= dict(zip(parts, split, strict=True))
        return Adapter(pairs=found["pairs"], scales=found["scales"], magnitudes=found["m"],
                       factors=found["c"])  # fmt: skip

    def packed(self) -> "Adapter":
        """The adapter with one pair for the parts of each module that holds several.

        Scales that differ are multiplied into B. Raises `BundleError` where a part has no pair.
        """
        pairs = dict(self.pairs)
        scales = {m: self.scale(m) for m in pairs}
        magnitudes, factors = dict(self.magnitudes), dict(self.factors)
        for whole, parts in wholes(self.pairs):
            common = scales[parts[0]] if len({scales[p] for p in parts}) == 1 else 1.0
            own = [(pairs[p][0], _times(pairs[p][1], scales[p] / common)) for p in parts]
            pairs[whole], scales[whole] = join_pairs(own), common
            for values in (magnitudes, factors):
                if parts[0] in values:
                    values[whole] = np.concatenate([values.pop(p) for p in parts])
            for part in parts:
                del pairs[part], scales[part]
        return Adapter(pairs=pairs, scales=scales, magnitudes=magnitudes, factors=factors)


def read_adapter(path: str | os.PathLike[str]) -> Adapter:
    """The adapter in a file ``.onnx_adapter``, in a folder of PEFT or in the tensors in one.

    Raises `BundleError` for what is no adapter, or one whose pairs are not all there is to it.
    """
    path = Path(path)
    if path.is_dir():
        return _read_peft(path / _PEFT_FILE, path / PEFT_CONFIG)
    if path.suffix == ".safetensors":
        return _read_peft(path, path.parent / PEFT_CONFIG)
    with open_file(path) as file:
        if file.read(8)[4:] != _MARK:
            raise BundleError(
                f"{path} is no adapter: it does not begin as those of ONNX Runtime do",
                hint=f"give a file {ADAPTER_SUFFIX}, or a folder as PEFT has it",
            )
    try:
        found = ort.AdapterFormat.read_adapter(os.fspath(path)).get_parameters()
        arrays = {name: np.array(value.numpy()) for name, value in found.items()}
    except Exception as error:  # the runtime's exceptions have no common base
        raise BundleError(
            f"{path} is no adapter: {str(error).splitlines()[0]}", hint="write it again"
        ) from error
    return _adapter_of(arrays, str(path))


def write_adapter(
    path: str | os.PathLike[str],
    adapter: Adapter,
    *,
    base: str | None = None,
    family: str | None = "",
) -> None:
    """Write an adapter, whole or not at all: ``.onnx_adapter``, else a folder as PEFT has it.

    `base` is what PEFT's configuration calls the model, `family` what onnxruntime-genai calls its
    architecture, if that is known: its builder has names of its own for modules, some of which are
    packed in PEFT. None is for a model of another exporter, whose modules are called as in PEFT.
    """
    path = Path(path)
    if path.suffix == ADAPTER_SUFFIX:
        _write_runtime(path, adapter)
    elif path.suffix:
        raise BundleError(
            f"{path} is no name of an adapter",
            hint=f"give a file {path.stem}{ADAPTER_SUFFIX}, or a folder for PEFT",
        )
    else:
        _write_peft(path, adapter.packed() if family in _PACKED else adapter, base, family)


def _write_runtime(path: Path, adapter: Adapter) -> None:
    arrays = adapter.parameters()
    # the values borrow the arrays' memory: both stay until the file is there
    values = {name: ort.OrtValue.ortvalue_from_numpy(a) for name, a in arrays.items()}
    whole = ort.AdapterFormat()
    whole.set_adapter_version(_VERSION)
    whole.set_model_version(_VERSION)
    whole.set_parameters(values)
    beside = path.with_name(f".{path.name}.tmp")
    try:
        whole.export_adapter(os.fspath(beside))
        replace_bytes(path, beside.read_bytes())
    except Exception as error:  # the runtime's exceptions have no common base
        raise BundleError(
            f"{path} cannot be written: {str(error).splitlines()[0]}",
            hint="check the folder, its permissions and the free space",
        ) from error
    finally:
        beside.unlink(missing_ok=True)


def _write_peft(folder: Path, adapter: Adapter, base: str | None, family: str | None) -> None:
    tensors = {}
    for module, (a, b) in adapter.pairs.items():
        name = _PREFIX + _peft_name(module, family)
        tensors[name + _DOWN] = np.ascontiguousarray(_across(a))
        tensors[name + _UP] = np.ascontiguousarray(_across(b))
        if adapter.is_dora:
            if module not in adapter.magnitudes:
                raise BundleError(
                    f"PEFT's form has the magnitudes of DoRA, and {module} has factors alone",
                    hint="flow2onnx lora convert ADAPTER OUTPUT --model FOLDER computes them",
                )
            tensors[name + _MAGNITUDE] = np.ascontiguousarray(adapter.magnitudes[module])
    text = json.dumps(_peft_config(adapter, base, family), indent=2, sort_keys=True) + "\n"

    def fill(place: Path) -> None:
        save_safetensors(place / _PEFT_FILE, tensors, {"format": "pt"})
        (place / PEFT_CONFIG).write_text(text, encoding="utf-8")

    is_ours = folder.is_dir() and {p.name for p in folder.iterdir()} <= {_PEFT_FILE, PEFT_CONFIG}
    replace_folder(folder, fill, overwrite=is_ours)


def _peft_config(adapter: Adapter, base: str | None, family: str | None) -> dict[str, Any]:
    """The configuration: the most usual rank and scale, and what differs from them by module."""
    ranks = {_peft_name(m, family): r for m, r in adapter.ranks.items()}
    alphas = {_peft_name(m, family): adapter.scale(m) * r for m, r in adapter.ranks.items()}
    (rank, _), *_ = Counter(ranks.values()).most_common(1)
    (alpha, _), *_ = Counter(alphas.values()).most_common(1)
    return {
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": {m: r for m, r in sorted(ranks.items()) if r != rank},
        "alpha_pattern": {m: a for m, a in sorted(alphas.items()) if a != alpha},
        "target_modules": sorted({m.rpartition(".")[2] for m in ranks}),
        "task_type": "CAUSAL_LM",
        **({"use_dora": True} if adapter.is_dora else {}),
    }


def _read_peft(path: Path, config_path: Path) -> Adapter:
    raw, _ = load_safetensors(path)
    elements = {n: t.element for n, t in read_header(path).tensors.items()}
    arrays = {_own_name(n): _across(_real(a, elements[n])) for n, a in raw.items()}
    magnitudes = {
        n.partition(_MAGNITUDE)[0]: a.ravel() for n, a in arrays.items() if _MAGNITUDE in n
    }
    pairs = _pairs({n: a for n, a in arrays.items() if _MAGNITUDE not in n}, str(path))
    with open_file(config_path, "PEFT writes it beside the tensors: it says the scale") as file:
        config = parse_object(file.read(), str(config_path))
    refused = next((name for name in _REFUSED if config.get(name)), None)
    if refused or config.get("peft_type", "LORA") != "LORA":
        what = refused or config.get("peft_type")
        raise BundleError(
            f"{config_path}: {what} is not supported",
            hint="adapters of two matrices for each module are",
        )
    if bool(config.get("use_dora")) != bool(magnitudes) or magnitudes.keys() - pairs.keys():
        raise BundleError(
            f"{path} has magnitudes of {len(magnitudes)} modules, and {config_path.name} says "
            f"use_dora: {json.dumps(bool(config.get('use_dora')))}",
            hint="copy both files of the adapter again",
        )
    return Adapter(pairs=pairs, scales={m: _peft_scale(config, m, _rank(a), config_path)
                                        for m, (a, _) in pairs.items()},
                   magnitudes=magnitudes)  # fmt: skip


def _peft_scale(config: Mapping[str, Any], module: str, rank: int, path: Path) -> float:
    alpha = config.get("lora_alpha", rank)
    for pattern, own in (config.get("alpha_pattern") or {}).items():
        if re.fullmatch(rf"(.*\.)?({re.escape(pattern)})", module):
            alpha = own
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise BundleError(f"{path}: lora_alpha is {alpha!r}", hint="it is a number")
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _adapter_of(arrays: Mapping[str, Array], what: str) -> Adapter:
    """The adapter whose arrays are those that a model is fed with."""
    factors = {n.removesuffix(FACTOR): a for n, a in arrays.items() if n.endswith(FACTOR)}
    pairs = _pairs({n: a for n, a in arrays.items() if not n.endswith(FACTOR)}, what)
    for module, a in factors.items():
        if module not in pairs or a.shape != (_rows(pairs[module][1]),):
            raise BundleError(f"{what}: {module} has factors {a.shape}", hint="write it again")
    return Adapter(pairs=pairs, scales={}, factors=factors)


def _pairs(arrays: Mapping[str, Array], what: str) -> dict[str, tuple[Array, Array]]:
    """Arrays by name as pairs by module; raises `BundleError` for what is no pair."""
    found = {}
    for name, a in arrays.items():
        if name.endswith(_UP) and name.removesuffix(_UP) + _DOWN in arrays:
            continue
        module = name.removesuffix(_DOWN)
        b = arrays.get(module + _UP)
        if module == name or b is None:
            raise BundleError(
                f"{what}: {name} is no half of a pair of matrices",
                hint="an adapter has M.lora_A.weight and M.lora_B.weight for each module M",
            )
        if not _fit(a, b) or a.dtype.kind != "f":
            raise BundleError(f"{what}: the pair of {module} is {a.shape}, {b.shape} {a.dtype}")
        found[module] = (a, b)
    if not found:
        raise BundleError(f"{what} holds no pair of matrices", hint="is it an adapter?")
    return found


def _fit(a: Array, b: Array) -> bool:
    """True for a pair of matrices, or of the weights of two convolutions, of one rank."""
    if a.ndim == b.ndim == 2:
        return bool(a.shape[1] == b.shape[0])
    is_window = a.ndim == b.ndim and a.ndim > 2 and set(b.shape[2:]) == {1}
    return is_window and b.shape[1] > 0 and a.shape[0] % b.shape[1] == 0


def _rank(a: Array) -> int:
    """The rank of an adapter by its A."""
    return int(a.shape[1] if a.ndim == 2 else a.shape[0])


def _rows(b: Array) -> int:
    """The width of what an adapter computes, by its B."""
    return int(b.shape[1] if b.ndim == 2 else b.shape[0])


def _across(array: Array) -> Array:
    """A matrix transposed, as PEFT has it; weights of convolutions are alike in both."""
    return array.T if array.ndim == 2 else array


def _own_name(name: str) -> str:
    """A name of PEFT's without its prefix and without the name of the adapter."""
    plain = name.removeprefix(_PREFIX)
    return re.sub(r"\.lora_(A|B)\.(?!weight$)[^.]+\.weight$", r".lora_\1.weight", plain)


def _peft_name(module: str, family: str | None) -> str:
    if family is None:
        return module
    own, other = _OTHER_NAMES.get(family, ("", ""))
    return re.sub(_BUILT, r"\1.self_attn.", module.replace(own, other))


def _plain(module: str) -> str:
    """A module's name as all forms of it come to."""
    name = module.removeprefix(_PREFIX).replace(".self_attn.", ".attn.")
    for own, other in _OTHER_NAMES.values():
        name = name.replace(other, own)
    return name


def _real(array: Array, element: str) -> Array:
    """An array as numpy has it; bfloat16 comes as bits, the upper half of a float32."""
    if element != "bfloat16":
        return array
    wide = array.astype(np.uint32) << 16
    return wide.view(np.float32)


def _times(array: Array, scale: float) -> Array:
    return (array.astype(np.float32) * np.float32(scale)).astype(array.dtype)
