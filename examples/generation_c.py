"""The last form: kinds by keyword, an optimizer in the body, and a callback for the result.

python -m examples.generation_c
"""

from typing import Annotated

import flow2onnx as flow
import flow2onnx.typing as tp

BATCH_SIZE = 100
Images = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH_SIZE, 1, 28, 28), dtype=flow.float)]
Labels = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32)]


def get_train_config() -> flow.FunctionConfig:
    config = flow.function_config()
    config.default_data_type(flow.float)
    return config


def mlp(images: flow.Blob) -> flow.Blob:
    initializer = flow.truncated_normal(0.1)
    reshape = flow.reshape(images, [images.shape[0], -1])
    hidden = flow.layers.dense(
        reshape,
        512,
        activation=flow.nn.relu,
        kernel_initializer=initializer,
        name="hidden",
    )
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="output")


def minimize(labels: flow.Blob, logits: flow.Blob) -> flow.Blob:
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="softmax_loss")
    lr_scheduler = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(lr_scheduler, momentum=0).minimize(loss)
    return loss


@flow.global_function(type="train", function_config=get_train_config())
def train_job(
    images: Images,
    labels: Labels,
) -> tp.Numpy:
    return minimize(labels, mlp(images))


@flow.global_function(type="train")
def train_job_async(
    images: Images,
    labels: Labels,
) -> tp.Callback[tp.Numpy]:
    return minimize(labels, mlp(images))


if __name__ == "__main__":
    (train_images, train_labels), (test_images, test_labels) = flow.data.load_mnist(BATCH_SIZE)

    for epoch in range(3):
        for i, (images, labels) in enumerate(zip(train_images, train_labels, strict=True)):
            loss = train_job(images, labels)
            if i % 20 == 0:
                print(loss.mean())

    for images, labels in zip(train_images, train_labels, strict=True):
        train_job_async(images, labels)(lambda loss: None)
    last = train_job_async(train_images[-1], train_labels[-1])
    last(lambda loss: print(f"last loss: {loss.mean():.4f}"))
