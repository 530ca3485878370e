"""The programs of OneFlow's documents, in the order of their age; only the import is another.

Each function defines the jobs of one document and returns them.
"""
# ruff: noqa: E501 - the documents' own lines
# ruff: noqa: B008 - a default that is a call is how the first generation declares inputs

import flow2onnx as flow
import flow2onnx.typing as oft
import flow2onnx.typing as tp


def get_train_config():
    config = flow.function_config()
    config.default_data_type(flow.float)
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"naive_conf": {}})
    return config


def get_eval_config():
    config = flow.function_config()
    config.default_data_type(flow.float)
    return config


def first_generation(BATCH_SIZE):  # noqa: N803
    @flow.function(get_train_config())
    def train_job(images_blob=flow.FixedTensorDef((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
                  labels_blob=flow.FixedTensorDef((BATCH_SIZE,), dtype=flow.int32)):  # fmt: skip
        initializer = flow.truncated_normal(0.1)
        reshape = flow.reshape(images_blob, [images_blob.shape[0], -1])
        hidden = flow.layers.dense(
            reshape, 512, activation=flow.nn.relu, kernel_initializer=initializer
        )
        logits = flow.layers.dense(hidden, 10, kernel_initializer=initializer)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels_blob, logits)
        flow.losses.add_loss(loss)
        return loss

    @flow.function(get_eval_config())
    def eval_job(images_blob=flow.FixedTensorDef((BATCH_SIZE, 1, 28, 28), dtype=flow.float)):
        initializer = flow.truncated_normal(0.1)
        reshape = flow.reshape(images_blob, [images_blob.shape[0], -1])
        hidden = flow.layers.dense(
            reshape, 512, activation=flow.nn.relu, kernel_initializer=initializer
        )
        return flow.layers.dense(hidden, 10, kernel_initializer=initializer)

    return train_job, eval_job


def second_generation(BATCH_SIZE):  # noqa: N803
    @flow.global_function(get_train_config())
    def train_job(images:oft.Numpy.Placeholder((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
                  labels:oft.Numpy.Placeholder((BATCH_SIZE, ), dtype=flow.int32)):  # fmt: skip
        with flow.scope.placement("cpu", "0:0"):
            initializer = flow.truncated_normal(0.1)
            reshape = flow.reshape(images, [images.shape[0], -1])
            hidden = flow.layers.dense(reshape, 512, activation=flow.nn.relu, kernel_initializer=initializer)  # fmt: skip
            logits = flow.layers.dense(hidden, 10, kernel_initializer=initializer)

            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="softmax_loss")  # fmt: skip

        flow.losses.add_loss(loss)
        return loss

    return train_job


def second_generation_annotated(BATCH_SIZE):  # noqa: N803
    @flow.global_function(get_train_config())
    def train_job(images:oft.Numpy.Placeholder((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
                  labels:oft.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32)) -> oft.Numpy:  # fmt: skip
        # mlp
        initializer = flow.truncated_normal(0.1)
        reshape = flow.reshape(images, [images.shape[0], -1])
        hidden = flow.layers.dense(reshape, 512, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden")  # fmt: skip
        logits = flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="output")

        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="softmax_loss")  # fmt: skip
        flow.losses.add_loss(loss)
        return loss

    return train_job


def third_generation(BATCH_SIZE, returns=tp.Callback[tp.Numpy], config=None):  # noqa: N803
    @flow.global_function(type="train", function_config=config)
    def train_job(
        images: tp.Numpy.Placeholder((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
        labels: tp.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32),
    ) -> returns:
        # mlp
        initializer = flow.truncated_normal(0.1)
        reshape = flow.reshape(images, [images.shape[0], -1])
        hidden = flow.layers.dense(
            reshape,
            512,
            activation=flow.nn.relu,
            kernel_initializer=initializer,
            name="hidden",
        )
        logits = flow.layers.dense(
            hidden, 10, kernel_initializer=initializer, name="output"
        )  # fmt: skip

        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="softmax_loss")
        lr_scheduler = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(lr_scheduler, momentum=0).minimize(loss)
        return loss

    return train_job
