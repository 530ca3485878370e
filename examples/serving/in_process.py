"""Predict in this process, without a server: numpy, onnxruntime and flow2onnx-runtime only.

    python examples/serving/in_process.py MODEL.onnx DIGITS.npz [PROVIDER ...]

Providers are tried in the order given, cuda and then cpu unless told.
"""

import asyncio
import sys

import numpy as np
from flow2onnx_runtime import Predictor
from numpy.typing import NDArray

Images = NDArray[np.float32]
Answer = dict[str, NDArray[np.float32]]


async def ask_together(predictor: Predictor, images: Images) -> list[Answer]:
    """Each image in a call of its own, all under way at once, in at most two seconds."""
    async with asyncio.timeout(2):
        return await asyncio.gather(
            *(predictor.asynchronous(images[i : i + 1]) for i in range(len(images)))
        )


def main(model: str, digits: str, *providers: str) -> None:
    """Print what the model takes and gives, where it runs, and how many answers are right."""
    with np.load(digits) as data:
        images, labels = data["images"], data["labels"]
    with Predictor(model, providers=providers or ("cuda", "cpu")) as predictor:
        print(predictor)
        for name, reason in predictor.passed_over.items():
            print(f"not on {name}: {reason}")
        predictor.warm_up()

        answers = predictor.many(images)["out/0"].argmax(1)  # any number of rows
        print(f"right: {np.sum(answers == labels)} of {len(labels)}")

        out = np.empty((8, 10), np.float32)  # results go into memory of ours
        predictor.run({"images": images[:8]}, out={"out/0": out}, timeout=2)
        print("answers:", *out.argmax(1))

        found = asyncio.run(ask_together(predictor, images[:8]))
        print("answers:", *(results["out/0"].argmax() for results in found))

        with predictor.batched(max_batch=8, max_delay=0.005) as batched:  # calls are joined
            futures = [batched.submit(images[i : i + 1]) for i in range(8)]
            print("answers:", *(future.result()["out/0"].argmax() for future in futures))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
