"""How the processes of a contest are kept to a narrower instruction set than the processor has.

Every switch is a variable of the environment, and all of them are set for all peers: a library
takes no notice of those of others. What has no switch goes on with what the processor has.
"""

import os
from dataclasses import dataclass

SETS = ("baseline", "avx2", "avx512")


@dataclass(frozen=True)
class Switch:
    """A variable, whose it is, and its values in the order of `SETS`."""

    of: str
    variable: str
    values: tuple[str, str, str]


SWITCHES = (
    Switch("flow2onnx-native, and oneDNN as it uses it", "FLOW2ONNX_NATIVE_ISA", SETS),
    Switch("torch", "ATEN_CPU_CAPABILITY", ("default", "avx2", "avx512")),
    Switch("what torch.compile compiles", "TORCHINDUCTOR_CPP_MARCH",
           ("x86-64-v2", "x86-64-v3", "x86-64-v4")),
    Switch("MKL in torch and OneFlow", "MKL_ENABLE_INSTRUCTIONS", ("SSE4_2", "AVX2", "AVX512")),
    Switch("oneDNN in torch, JAX and OneFlow", "ONEDNN_MAX_CPU_ISA",
           ("SSE41", "AVX2", "AVX512_CORE")),
    Switch("what JAX compiles", "XLA_FLAGS",
           tuple(f"--xla_cpu_max_isa={s}" for s in ("SSE4_2", "AVX2", "AVX512"))),
)  # fmt: skip

WITHOUT = (
    "ONNX Runtime's kernels (MLAS), which choose by the processor alone, so that whatever of ours "
    "and of onnxruntime-training runs on them is at an advantage; products that XLA leaves to "
    "libraries compiled ahead; OneFlow's own kernels"
)


def variables(isa: str) -> dict[str, str]:
    """The variables that keep every peer to a set; none where `isa` is empty.

    Flags of XLA that are in the environment stay, before ours.
    """
    if not isa:
        return {}
    found = {switch.variable: switch.values[SETS.index(isa)] for switch in SWITCHES}
    return found | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {found['XLA_FLAGS']}".strip()}


def note(isa: str) -> tuple[str, ...]:
    """The sentence of a page of results about the cap; none without one."""
    if not isa:
        return ()
    listed = "; ".join(f"{s.of}: `{s.variable}={s.values[SETS.index(isa)]}`" for s in SWITCHES)
    return (f"Instructions are capped to {isa}. {listed}. Not capped, as they have no switch: "
            f"{WITHOUT}.",)  # fmt: skip


def title_with_cap(text: str, isa: str) -> str:
    """A title with the cap, if there is one."""
    return f"{text}, instructions capped to {isa}" if isa else text
