"""Make the exported network trainable: what `flow2onnx make-trainable` does.

    python -m examples.finetune.prepare digits.onnx digits_bundle

Torch is not needed. The first convolution stays as it is; normalisation takes the statistics of
the batch while the network trains.
"""

import sys

import flow2onnx as flow


def main(model: str, bundle: str) -> None:
    made = flow.make_trainable(
        model, "cross_entropy", "adam", lr=1e-3, frozen="features.0.*", training_mode=True
    )
    made.save(bundle).raise_if_failed()
    for parameter in made.parameters:
        print(f"{parameter.name:28} {'trained' if parameter.is_trained else parameter.reason}")
    print(f"written to {bundle}")


if __name__ == "__main__":
    main(*sys.argv[1:])
