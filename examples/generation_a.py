"""The oldest form: `flow.function`, inputs as default values, the optimizer in the configuration.

python -m examples.generation_a
"""

import flow2onnx as flow

BATCH_SIZE = 100


def get_train_config() -> flow.FunctionConfig:
    config = flow.function_config()
    config.default_data_type(flow.float)
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"naive_conf": {}})
    return config


def get_eval_config() -> flow.FunctionConfig:
    config = flow.function_config()
    config.default_data_type(flow.float)
    return config


def mlp(images: flow.Blob) -> flow.Blob:
    initializer = flow.truncated_normal(0.1)
    reshape = flow.reshape(images, [images.shape[0], -1])
    hidden = flow.layers.dense(
        reshape, 512, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden"
    )
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="output")


@flow.function(get_train_config())
def train_job(
    images_blob: flow.Blob = flow.FixedTensorDef((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
    labels_blob: flow.Blob = flow.FixedTensorDef((BATCH_SIZE,), dtype=flow.int32),
) -> flow.Blob:
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels_blob, mlp(images_blob))
    flow.losses.add_loss(loss)
    return loss


@flow.function(get_eval_config())
def eval_job(
    images_blob: flow.Blob = flow.FixedTensorDef((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
) -> flow.Blob:
    return mlp(images_blob)


if __name__ == "__main__":
    flow.train.CheckPoint().init()
    (train_images, train_labels), (test_images, test_labels) = flow.data.load_mnist(BATCH_SIZE)
    for epoch in range(20):
        losses = [
            train_job(images, labels).get().mean()
            for images, labels in zip(train_images, train_labels, strict=True)
        ]
        if epoch % 5 == 4:
            print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    right = sum(
        (eval_job(images).get().argmax(1) == labels).sum()
        for images, labels in zip(test_images, test_labels, strict=True)
    )
    print(f"test accuracy: {right / test_labels.size:.2%}")
