# type: ignore  # it is for another library
"""A training script as people wrote it for OneFlow in 2020, unedited since; it knows one library.

Continue from a checkpoint directory that OneFlow itself wrote:

    flow2onnx run train.py --load old_snapshot --save new_snapshot
    flow2onnx export train.py:predict_job -o mlp.onnx --checkpoint new_snapshot --dynamic-batch
    flow2onnx verify mlp.onnx
"""

import argparse

import numpy as np
import oneflow as flow
import oneflow.typing as oft

parser = argparse.ArgumentParser()
parser.add_argument("--load", default="")
parser.add_argument("--save", default="")
parser.add_argument("--steps", type=int, default=14)
args, _ = parser.parse_known_args()

BATCH_SIZE = 100


def get_train_config():
    config = flow.function_config()
    config.default_data_type(flow.float)
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"momentum_conf": {"beta": 0.9}})
    return config


def mlp(images):
    initializer = flow.truncated_normal(0.1)
    reshape = flow.reshape(images, [images.shape[0], -1])
    hidden = flow.layers.dense(
        reshape, 64, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden"
    )
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="output")


@flow.global_function(get_train_config())
def train_job(
    images: oft.Numpy.Placeholder((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
    labels: oft.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32),
):
    logits = mlp(images)
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="softmax_loss")
    flow.losses.add_loss(loss)
    return loss


@flow.global_function()
def predict_job(
    images: oft.Numpy.Placeholder((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
):
    return flow.nn.softmax(mlp(images))


if __name__ == "__main__":
    check_point = flow.train.CheckPoint()
    if args.load:
        check_point.load(args.load)
    else:
        check_point.init()

    (train_images, train_labels), (test_images, test_labels) = flow.data.load_mnist(BATCH_SIZE)
    for i in range(args.steps):
        j = i % len(train_images)
        loss = train_job(train_images[j], train_labels[j]).get().mean()
        if i in (0, args.steps - 1):
            print(f"step {i} loss {loss:.6f}")

    correct = 0
    for i, images in enumerate(test_images):
        correct += int((predict_job(images).get().numpy().argmax(1) == test_labels[i]).sum())
    print(f"accuracy {100.0 * correct / np.size(test_labels):.2f}%")
    if args.save:
        check_point.save(args.save)
