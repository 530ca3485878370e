"""Train the documentation's perceptron on handwritten digits, and export it.

python -m examples.mlp_digits [--epochs 30] [--out demo]
"""

import numpy as np

from examples.training import arguments, curve, digits, report, train
from models import mlp


def main() -> None:
    """Train, draw, export, tell."""
    options = arguments(epochs=30)
    run = train("MLP on digits", mlp.train_job, mlp.predict_job, mlp.BATCH, options.epochs)
    picture, model = options.out / "mlp_loss.png", options.out / "mlp.onnx"
    curve(run, picture)
    mlp.predict_job.export(model, dynamic_batch=True)
    mlp.train_job.export(options.out / "mlp_bundle", predict=mlp.predict_job)
    _, (images, labels) = digits(mlp.BATCH)
    np.savez(
        options.out / "digits.npz", images=images.reshape(-1, 1, 28, 28), labels=labels.ravel()
    )
    report(run, curve=picture, model=model, bundle=options.out / "mlp_bundle")


if __name__ == "__main__":
    main()
