"""Train the documentation's perceptron on handwritten digits, and export it.

    python examples/mlp_digits.py [--epochs 30] [--out demo]
"""

from models import mlp
from training import arguments, curve, report, train


def main() -> None:
    """Train, draw, export, tell."""
    options = arguments(epochs=30)
    run = train("MLP on digits", mlp.train_job, mlp.predict_job, mlp.BATCH, options.epochs)
    picture, model = options.out / "mlp_loss.png", options.out / "mlp.onnx"
    curve(run, picture)
    mlp.predict_job.export(model, dynamic_batch=True)
    mlp.train_job.export(options.out / "mlp_bundle", predict=mlp.predict_job)
    report(run, curve=picture, model=model, bundle=options.out / "mlp_bundle")


if __name__ == "__main__":
    main()
