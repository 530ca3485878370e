"""flow2onnx-runtime: a bundle trains as recorded, is saved, goes on, and answers; no compiler."""

import importlib.util

from common import arguments, check_installed, replay
from flow2onnx_runtime import Predictor, Trainer, load_safetensors


def main() -> None:
    """Train and predict with a conformance bundle."""
    number, conformance, work = arguments()
    check_installed(number, "flow2onnx_runtime")
    for name in ("flow2onnx", "onnx", "onnx_ir"):
        assert importlib.util.find_spec(name) is None, f"{name} is here"
    folder = conformance / "mlp"
    trainer = Trainer(folder / "bundle")
    worst = replay(trainer, folder, 10)
    trainer.save(work / "state.safetensors")
    again = Trainer(folder / "bundle")
    again.load(work / "state.safetensors")
    assert again.steps == 10
    model = again.export_predict(work / "answer")
    feeds, _ = load_safetensors(folder / "feeds.safetensors")
    (feed,) = again.manifest.predict[0].feeds
    (answer,) = Predictor(model)(feeds[feed.name][0]).values()
    (kept,) = trainer.predict(feeds[feed.name][0]).values()
    assert (answer == kept).all(), "the exported model answers otherwise than the trainer"
    print(f"10 steps within {worst:.0e} of the trace, saved, loaded, exported")


main()
