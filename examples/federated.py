"""Average what five devices learn, none of which shows its images to anyone.

python -m examples.federated [--rounds 12]

Each device has a share of the handwritten digits in which two digits are most of it. In a round
every device starts from the common weights, trains on its own images, and sends what changed; the
mean of the five changes is added to the common weights.
"""

import argparse
import tempfile

import numpy as np
from flow2onnx_runtime import Trainer

import flow2onnx as flow
from models import mlp

DEVICES, BATCH = 5, 20


def shares(images: np.ndarray, labels: np.ndarray) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """The batches of each device: of every five images of a digit, three go to its own device."""
    rng, owners = np.random.default_rng(0), np.empty(len(labels), int)
    for digit in range(10):
        places = rng.permutation(np.flatnonzero(labels == digit))
        owners[places] = rng.integers(0, DEVICES, len(places))
        owners[places[: len(places) * 3 // 5]] = digit % DEVICES
    return [batches(images[owners == d], labels[owners == d], rng) for d in range(DEVICES)]


def batches(
    images: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Full batches, in random order."""
    order = rng.permutation(len(labels))[: len(labels) // BATCH * BATCH].reshape(-1, BATCH)
    return [(images[rows], labels[rows]) for rows in order]


def accuracy(trainer: Trainer, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of the images that the present weights recognise."""
    found = [
        trainer.predict(images[i : i + BATCH])["out/0"].argmax(1)
        for i in range(0, len(labels), BATCH)
    ]
    return float(np.mean(np.concatenate(found) == labels))


def main() -> None:
    """Ship one bundle, train it in five places, tell what the average knows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    (images, labels), (tests, answers) = (
        (x.reshape(-1, 1, 28, 28), y.reshape(-1)) for x, y in flow.data.load_mnist(100)
    )
    devices = shares(images, labels)
    with tempfile.TemporaryDirectory() as bundle:
        mlp.train_job.export(
            bundle, predict=mlp.predict_job, batch=BATCH, on_device=True, verify=False
        )
        common, device = Trainer(bundle), Trainer(bundle)
        first = common.state_dict()
        for number in range(rounds):
            start = common.state_dict()
            deltas = []
            for own in devices:
                device.load_state_dict(start)
                for batch in own:
                    device.step(*batch)
                deltas.append(device.delta(start))
            common.apply_delta({n: np.mean([d[n] for d in deltas], axis=0) for n in deltas[0]})
            print(f"round {number + 1}: {accuracy(common, tests, answers):.1%}")
        device.load_state_dict(first)
        for batch in devices[0] * rounds:
            device.step(*batch)
        print(f"accuracy of the average: {accuracy(common, tests, answers):.1%}")
        print(f"accuracy of the first device alone: {accuracy(device, tests, answers):.1%}")


if __name__ == "__main__":
    main()
