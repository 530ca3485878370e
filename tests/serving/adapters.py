"""A language model with slots, adapters for it by seed, and what it computes without a server."""

import numpy as np
from flow2onnx_runtime.adapters import Adapter

from flow2onnx.imported import write_slots
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.sessions import feeds, open_folder

COUNT = 100
IDS = np.arange(5, 13).reshape(2, 4)
MODULES = ("model.layers.0.attn.q_proj", "model.layers.1.mlp.down_proj")
SIZES = {MODULES[0]: (64, 64), MODULES[1]: (96, 64)}


def drawn(seed, scale=1.0, columns=0):
    """An adapter of two modules, whose ranks differ by seed; of another model with more columns."""
    rng, rank = np.random.default_rng(seed), 1 + seed % 3
    pairs = {
        m: (rng.standard_normal((k + columns, rank)).astype("f"),
            rng.standard_normal((rank, n)).astype("f"))
        for m, (k, n) in SIZES.items()
    }  # fmt: skip
    return Adapter(pairs=pairs, scales=dict.fromkeys(pairs, scale))


def folder_with_slots(path):
    """A tiny model of 4 bits that takes adapters."""
    made = write_folder(path, with_bits(TINY, 4))
    write_slots(made.path)
    return made


def expected_logits(folder):
    """A function: the logits of the model with an adapter, in a session of its own."""
    session = open_folder(folder.model)

    def run(adapter=None, ids=IDS):
        slots = {} if adapter is None else adapter.parameters()
        return session.run(["logits"], {**feeds(folder, ids), **slots})[0]

    return run
