"""Train the documentation's LeNet on handwritten digits.

python -m examples.lenet_digits [--epochs 15] [--out demo]
"""

from examples.training import arguments, curve, report, train
from models import lenet


def main() -> None:
    """Train, draw, tell."""
    options = arguments(epochs=15)
    run = train("LeNet on digits", lenet.train_job, lenet.predict_job, lenet.BATCH, options.epochs)
    picture = options.out / "lenet_loss.png"
    curve(run, picture)
    report(run, curve=picture)


if __name__ == "__main__":
    main()
