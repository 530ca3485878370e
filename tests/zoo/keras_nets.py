"""Networks of Keras, exported by tf2onnx, with their steps in TensorFlow.

`python -m tests.zoo.keras_nets FOLDER` writes a folder for each; it needs TensorFlow and tf2onnx
and nothing of ours.
"""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tf2onnx
from keras import layers

from tests.zoo.origins import RATES, STEPS, Origin, Run, write

BATCH = 3
_RULES = {
    "sgd": keras.optimizers.SGD,
    "adam": lambda rate: keras.optimizers.Adam(rate, epsilon=1e-8),
}


def residual():
    x = keras.Input((8,))
    y = layers.Dense(8, activation="relu")(layers.LayerNormalization()(x))
    return keras.Model(x, layers.Add()([x, layers.Dense(8)(y)]))


def attention():
    x = keras.Input((5, 8))
    y = layers.MultiHeadAttention(2, 4)(x, x)
    return keras.Model(x, layers.LayerNormalization()(layers.Add()([x, y])))


def unet():
    x = keras.Input((8, 8, 2))
    a = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    b = layers.Conv2D(6, 3, padding="same", activation="relu")(layers.MaxPool2D()(a))
    c = layers.UpSampling2D(interpolation="nearest")(b)
    return keras.Model(x, layers.Conv2D(1, 1)(layers.Concatenate()([a, c])))


def stack(shape, *parts):
    return lambda: keras.Sequential([keras.Input(shape), *parts])


def application(name, size=32, **settings):
    def make():
        factory = getattr(keras.applications, name)
        return factory(
            weights=None, input_shape=(size, size, 3), classes=5, classifier_activation=None,
            **settings,
        )  # fmt: skip

    return make


def images(*parts):
    return stack((8, 8, 3), *parts)


NETS = {
    "Keras perceptron": stack((8,), layers.Dense(16, "relu"), layers.Dense(4)),
    "Keras perceptron, gelu": stack((8,), layers.Dense(16, "gelu"), layers.Dense(4)),
    "Keras perceptron, swish": stack((8,), layers.Dense(16, "swish"), layers.Dense(4, "tanh")),
    "Keras convolutions": images(
        layers.Conv2D(6, 3, activation="relu"), layers.MaxPool2D(), layers.Flatten(),
        layers.Dense(4),
    ),
    "Keras convolutions in depth": images(
        layers.DepthwiseConv2D(3, padding="same"), layers.ReLU(), layers.Conv2D(4, 1, strides=2),
    ),
    "Keras separable convolutions": images(layers.SeparableConv2D(6, 3), layers.ELU()),
    "Keras transposed convolution": images(
        layers.Conv2D(4, 3, strides=2, padding="same"),
        layers.Conv2DTranspose(3, 3, strides=2, padding="same"),
    ),
    "Keras batch normalisation": images(layers.Conv2D(4, 3), layers.BatchNormalization()),
    "Keras convolution of text": stack((9, 4), layers.Conv1D(6, 3, activation="relu"),
                                       layers.GlobalMaxPool1D(), layers.Dense(3)),
    "Keras LSTM": stack((7, 6), layers.LSTM(5), layers.Dense(3)),
    "Keras GRU": stack((7, 6), layers.GRU(5), layers.Dense(3)),
    "Keras RNN": stack((7, 6), layers.SimpleRNN(5), layers.Dense(3)),
    "Keras LSTM, both ways": stack((7, 6), layers.Bidirectional(layers.LSTM(5)), layers.Dense(3)),
    "Keras residual perceptron": residual,
    "Keras attention": attention,
    "Keras U-Net": unet,
    "Keras MobileNet": application("MobileNet", alpha=0.25),
    "Keras MobileNetV2": application("MobileNetV2", alpha=0.35),
}  # fmt: skip


def origin(make):
    """A network as exported, and its steps."""
    keras.utils.set_random_seed(0)
    net = make()
    rng = np.random.default_rng(0)
    net.set_weights([_drawn(w, rng) for w in net.get_weights()])
    x = rng.standard_normal((BATCH, *net.input_shape[1:])).astype(np.float32)
    labels = rng.standard_normal(net(x, training=False).shape).astype(np.float32)
    signature = (tf.TensorSpec((BATCH, *net.input_shape[1:]), tf.float32, name="x"),)
    model, _ = tf2onnx.convert.from_function(
        tf.function(lambda x: net(x, training=False)), signature, opset=18
    )
    first = net.get_weights()
    runs = {rule: _train(net, x, labels, rule, first) for rule in RATES}
    return Origin(model, (x,), labels, "mse", _trained(net, first), runs, is_named=False)


def _drawn(weight, rng):
    """The weight, or random numbers where it is all 0: tf2onnx leaves out biases that are 0."""
    if weight.any():
        return weight
    return rng.normal(0.0, 0.1, weight.shape).astype(weight.dtype)


def _trained(net, values):
    """The values that are trained, by the names in Keras, which tf2onnx does not keep."""
    trained = {id(w) for w in net.trainable_weights}
    return {w.path: v for w, v in zip(net.weights, values, strict=True) if id(w) in trained}


def _train(net, x, labels, rule, first):
    net.set_weights(first)
    optimizer, losses = _RULES[rule](RATES[rule]), []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x, training=False) - labels) ** 2)
        weights = net.trainable_weights
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        losses.append(float(loss))
    return Run(tuple(losses), _trained(net, net.get_weights()))


def main(folder):
    """Write all networks below a folder; one that tf2onnx refuses leaves an empty one."""
    for name, make in NETS.items():
        try:
            write(origin(make), Path(folder, name))
        except Exception as error:  # tf2onnx's may be of any class
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            Path(folder, name).mkdir(exist_ok=True)
            Path(folder, name, "error.txt").write_text(f"{type(error).__name__}: {error}"[:160])


if __name__ == "__main__":
    main(sys.argv[1])
