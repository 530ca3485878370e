"""Write tensorflow_losses.npz: losses and their gradients by TensorFlow, in float64.

Its CTC loss is computed in float32, which is all that it takes.

    python -m tests.ops.record_tensorflow    # in an environment with tensorflow and flow2onnx
"""

import numpy as np
import tensorflow as tf

from tests.ops.test_tensorflow import CASES, RECORD


def loss_of(case, logits):
    """The loss of each row."""
    first, *lengths = case.rest
    if case.kind == "ctc":
        steps, labels = lengths
        return tf.nn.ctc_loss(
            first, logits, labels, steps, logits_time_major=True,
            blank_index=case.settings["blank"],
        )  # fmt: skip
    if case.kind == "sparse":
        return tf.nn.sparse_softmax_cross_entropy_with_logits(first, logits)
    function = getattr(tf.nn, f"{case.kind}_cross_entropy_with_logits")
    return function(labels=tf.constant(first, tf.float64), logits=logits)


def main():
    """Record every case."""
    found = {}
    for name, case in CASES.items():
        kind = tf.float32 if case.kind == "ctc" else tf.float64
        logits = tf.constant(case.logits, kind)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = loss_of(case, logits)
        seeds = tf.constant(case.seeds, kind)
        found[f"{name}/loss"] = loss.numpy()
        found[f"{name}/gradient"] = tape.gradient(loss, logits, seeds).numpy()
        assert all(np.isfinite(found[f"{name}/{k}"]).all() for k in ("loss", "gradient"))
    np.savez_compressed(RECORD, **found)


if __name__ == "__main__":
    main()
