"""The second form: `flow.global_function(config)`, annotations, results by `.get()`.

python -m examples.generation_b
"""

from typing import Annotated

import flow2onnx as flow
import flow2onnx.typing as oft

BATCH_SIZE = 100
Images = Annotated[flow.Blob, oft.Numpy.Placeholder((BATCH_SIZE, 1, 28, 28), dtype=flow.float)]
Labels = Annotated[flow.Blob, oft.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32)]


def get_train_config() -> flow.FunctionConfig:
    config = flow.function_config()
    config.default_data_type(flow.float)
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"naive_conf": {}})
    return config


@flow.global_function(get_train_config())
def train_job(
    images: Images,
    labels: Labels,
) -> flow.Blob:
    with flow.scope.placement("cpu", "0:0"):
        initializer = flow.truncated_normal(0.1)
        reshape = flow.reshape(images, [images.shape[0], -1])
        hidden = flow.layers.dense(
            reshape, 512, activation=flow.nn.relu, kernel_initializer=initializer
        )
        logits = flow.layers.dense(hidden, 10, kernel_initializer=initializer)

        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="softmax_loss")

    flow.losses.add_loss(loss)
    return loss


if __name__ == "__main__":
    (train_images, train_labels), (test_images, test_labels) = flow.data.load_mnist(BATCH_SIZE)
    for epoch in range(50):
        for i, (images, labels) in enumerate(zip(train_images, train_labels, strict=True)):
            loss = train_job(images, labels).get()
            if i % 20 == 0 and epoch % 10 == 0:
                print(loss.mean())
    last = train_job(train_images[-1], train_labels[-1])
    last.async_get(lambda loss: print(f"last loss: {loss.mean():.4f}"))
