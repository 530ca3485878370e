"""Record losses of PEFT by its settings: `python -m tests.imported.lora.record_peft`.

It needs torch, transformers and peft beside the compiler, which draws the first adapters.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
from flow2onnx_runtime.adapters import Adapter

import flow2onnx as flow
from tests.imported.lora.convolutions import CLASSES, RANKS, TARGETS, weights, write_network
from tests.imported.lora.convolutions import batches as image_batches
from tests.imported.lora.folders import write_folder
from tests.imported.lora.record_torch import ALPHA, RANK, SMALL, batches, first_pairs

PLACE = Path(__file__).with_name("recorded_peft.npz")
RATE = 1e-2
RATES = {"sgd": 0.1}
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# by name: what flow.lora is told, what peft.LoraConfig is told, and the factor of LoRA+
CASES = {
    "rslora": ({"rank": 4, "rslora": True}, {"r": 4, "use_rslora": True}, None),
    "ranks": (
        {"rank": {"q_proj": 2, "down_proj": 8, "*": 4}},
        {"r": 4, "rank_pattern": {"q_proj": 2, "down_proj": 8}},
        None,
    ),
    "plus": ({"rank": 4, "up_rate": 4.0}, {"r": 4}, 4.0),
    "targets": (
        {"rank": 4, "targets": ["v_proj", "up_proj"]},
        {"r": 4, "target_modules": ["v_proj", "up_proj"]},
        None,
    ),
    # a control: AdamW divides gradients by their size, and so the rounding noise of those near 0
    "sgd": ({"rank": 4, "optimizer": "sgd"}, {"r": 4}, None),
    "dora": ({"rank": 4, "dora": True}, {"r": 4, "use_dora": True}, None),
    "dora-plus": (
        {"rank": 4, "dora": True, "rslora": True, "up_rate": 4.0},
        {"r": 4, "use_dora": True, "use_rslora": True},
        4.0,
    ),
}
DROPPED, DRAWS = 0.3, 600  # the share that is dropped, and how many losses are drawn
SEEN = ("model.layers.0.attn.v_proj", "model.layers.1.mlp.up_proj")


def ours(path, name):
    """The adapters of a case, ready to be trained; without decay, as PEFT's LoRA+ has it."""
    options = {"optimizer": "adamw(weight_decay=0)", **CASES[name][0]}
    return flow.lora(path, lr=RATES.get(name, RATE), accumulate=False, **options)


def dropping(path):
    """Adapters that are not zeros, with dropout and a rate of nothing: only draws differ."""
    pairs = first_pairs(SMALL)
    start = Adapter(pairs=pairs, scales=dict.fromkeys(pairs, ALPHA / RANK))
    return flow.lora(path, start=start, dropout=DROPPED, lr=1e-30, accumulate=False)


def main():
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = write_folder(Path(place) / "m", SMALL)
        found["dropout/losses"] = np.asarray(drop(folder, Path(place) / "dropout"))
        found |= train_network(Path(place) / "network.onnx")
        for name in CASES:
            losses, end = train(folder, name, Path(place) / name)
            found[f"{name}/losses"] = np.asarray(losses)
            for module in SEEN:
                found |= {f"{name}/{module}/{n}": v for n, v in end[module].items()}
    np.savez_compressed(PLACE, **found)


def our_network(path):
    """The adapters of a network of images, ready to be trained."""
    return flow.lora_network(
        path, "cross_entropy", RANKS, 16, TARGETS, optimizer="adamw(weight_decay=0)", lr=RATE
    )


def torch_network():
    """The network of `convolutions` in torch."""
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
            self.conv2 = nn.Conv2d(6, 9, 3, stride=2, groups=3)
            self.conv3 = nn.Conv2d(9, 8, 1)
            self.fc, self.head = nn.Linear(8, 8), nn.Linear(8, CLASSES)

        def forward(self, images):
            x = images
            for layer in (self.conv1, self.conv2, self.conv3):
                x = layer(x).relu()
            return self.head(self.fc(x.mean((2, 3))).relu())

    model = Network()
    model.load_state_dict({n: torch.from_numpy(a) for n, a in weights().items()})
    return model


def train_network(path):
    """The losses of PEFT's steps of the network, and its matrices by name after them."""
    import peft
    import torch

    first = our_network(write_network(path)).state.foreign.tensors
    config = peft.LoraConfig(r=4, rank_pattern={"conv2": 6}, lora_alpha=16, target_modules=TARGETS)
    model = peft.get_peft_model(torch_network(), config)
    pairs = _pairs(model)
    with torch.no_grad():
        for module, pair in pairs.items():
            a = first[f"{module}.lora_A.weight"].numpy()
            pair["A"].copy_(torch.from_numpy((a.T if a.ndim == 2 else a).copy()))
            pair["B"].zero_()
    rule = torch.optim.AdamW([v for p in pairs.values() for v in p.values()], RATE, weight_decay=0)
    losses = []
    for images, labels in image_batches():
        rule.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.tensor(images)), torch.tensor(labels))
        loss.backward()
        rule.step()
        losses.append(loss.item())
    print("network", json.dumps(losses))
    ends = {f"network/{m}/{n}": v.detach().numpy() for m, p in pairs.items() for n, v in p.items()}
    return {"network/losses": np.asarray(losses), **ends}


def train(folder, name, place):
    """The losses of PEFT's steps, and the pairs (A, B) by module after them."""
    import torch
    from peft.optimizers import create_loraplus_optimizer

    _, settings, factor = CASES[name]
    model = network(folder, place, settings)
    pairs = _pairs(model)
    first = ours(folder.path, name).state.foreign.tensors
    with torch.no_grad():
        for module, pair in pairs.items():
            pair["A"].copy_(torch.from_numpy(first[f"{module}.lora_A.weight"].numpy().T.copy()))
            pair["B"].zero_()
    values = [v for p in pairs.values() for v in p.values()]
    if name == "sgd":
        rule = torch.optim.SGD(values, RATES[name])
    elif factor is None:
        rule = torch.optim.AdamW(values, RATE, weight_decay=0.0)
    else:
        rule = create_loraplus_optimizer(
            model, torch.optim.AdamW, lr=RATE, loraplus_lr_ratio=factor
        )
    losses = []
    for ids, labels in batches(folder.shape):
        rule.zero_grad()
        scores = model(input_ids=torch.tensor(ids), use_cache=False).logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(
            scores, torch.tensor(labels).flatten(), ignore_index=-100
        )
        loss.backward()
        rule.step()
        losses.append(loss.item())
    print(name, json.dumps(losses))
    return losses, {
        m: {n: v.detach().numpy().T.copy() for n, v in p.items()} for m, p in pairs.items()
    }


def drop(folder, place):
    """The losses of one batch while dropout draws."""
    import torch

    model = network(folder, place, {"r": RANK, "lora_alpha": ALPHA, "lora_dropout": DROPPED})
    with torch.no_grad():
        first = first_pairs(folder.shape)
        for module, pair in _pairs(model).items():
            for side, value in zip("AB", first[module], strict=True):
                pair[side].copy_(torch.from_numpy(value.T.copy()))
    ids, labels = next(iter(batches(folder.shape)))
    torch.manual_seed(0)
    model.train()
    losses = []
    for _ in range(DRAWS):
        with torch.no_grad():
            scores = model(input_ids=torch.tensor(ids), use_cache=False).logits.flatten(0, 1)
        losses.append(
            torch.nn.functional.cross_entropy(
                scores, torch.tensor(labels).flatten(), ignore_index=-100
            ).item()
        )
    print("dropout", np.mean(losses), np.std(losses))
    return losses


def network(folder, place, settings):
    """PEFT's model of a folder."""
    import peft
    import torch
    import transformers

    from benchmarks.lora import write_for_transformers

    write_for_transformers(folder, place)
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    config = {"lora_alpha": 16, "target_modules": list(MODULES), **settings}
    return peft.get_peft_model(model, peft.LoraConfig(**config))


def _pairs(model):
    """The matrices of PEFT's model as parameters, by the served model's names of modules."""
    found = {}
    for name, value in model.named_parameters():
        if value.requires_grad:
            module, _, side = name.removeprefix("base_model.model.").partition(".lora_")
            pair = found.setdefault(module.replace(".self_attn.", ".attn."), {})
            pair["magnitude" if side.startswith("magnitude") else side[0]] = value
    return found


if __name__ == "__main__":
    main()
