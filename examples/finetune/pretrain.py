"""Train a small network in torch on the digits 0 to 4, and export it.

    python -m examples.finetune.pretrain digits.onnx

All digits are written beside it, as digits.npz. The export has nothing folded
(``optimize=False``), so that every weight is there under its name.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from flow2onnx.data.mnist import load_mnist


class Net(nn.Module):
    """Two convolutions with normalisation, and a classifier of all ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Linear(16 * 7 * 7, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.features(images))
        return scores


def main(path: str) -> None:
    torch.manual_seed(0)
    (images, labels), _ = load_mnist(100, 100)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    losses = []
    for _ in range(4):
        for x, y in zip(images, labels, strict=True):
            known = torch.from_numpy(y).long() < 5
            x, y = torch.from_numpy(x)[known], torch.from_numpy(y).long()[known]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    print(f"loss on the digits 0 to 4: {losses[-1]:.4f}")
    net.eval()
    batch = {0: torch.export.Dim("batch")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of itself
        torch.onnx.export(
            net, (torch.zeros(2, 1, 28, 28),), path, input_names=["images"],
            output_names=["scores"], dynamo=True, dynamic_shapes=(batch,), optimize=False,
            external_data=False, verbose=False,
        )  # fmt: skip
    digits = Path(path).with_suffix(".npz")
    np.savez(digits, images=np.concatenate(images), labels=np.concatenate(labels))
    print(f"exported to {path}, all digits to {digits}")


if __name__ == "__main__":
    main(sys.argv[1])
