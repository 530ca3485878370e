"""Models from elsewhere below `flow`; the runtime is not loaded before one is asked for.

The signatures are written out here and in `flow2onnx.imported`, which is slow to import; a test
holds them equal.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from flow2onnx import engine, imported
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.groups import Groups
from flow2onnx.optim.schedules import Scheduler

if TYPE_CHECKING:
    from flow2onnx_runtime import Options

    from flow2onnx.imported import ModelSource, TrainableModel

__all__ = [
    "accelerate",
    "from_training_info",
    "grad",
    "hvp",
    "jacobian",
    "jvp",
    "make_trainable",
    "vjp",
]


def make_trainable(
    model: "ModelSource",
    loss: str | Callable[..., Any],
    optimizer: str | Optimizer = "adam",
    *,
    lr: float | Scheduler | None = None,
    schedule: str | Scheduler | None = None,
    groups: Groups = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    trained: str | Sequence[str] | None = None,
    frozen: str | Sequence[str] | None = None,
    separate: str | Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    output: str | Sequence[str] | None = None,
    labels: str = "labels",
    logits: bool = False,
    training_mode: bool = False,
    precision: Literal["fp16", "bf16"] | None = None,
    on_device: bool = False,
    accumulate: bool = False,
    ema: float | None = None,
    recompute: bool | int | Sequence[str] = False,
    in_place: bool = True,
    opset: int | None = None,
    name: str | None = None,
    seed: int = 0,
    metadata: Mapping[str, str] | None = None,
    freezable: int = 1_500_000_000,
    check_import: bool | None = None,
) -> "TrainableModel":
    """An ONNX model (path, `onnx.ModelProto` or `onnx_ir.Model`) with a training step of its own.

    `flow2onnx make-trainable` has the same options under the same names.

    model, loss, optimizer
        `loss` is a name with settings, such as ``"cross_entropy(axis=-1)"``, of the first output or
        the one called `output` (a list of names for those of several, as ``"triplet"``), against an
        input called `labels`; the name of an output, whose mean
        is minimised; or a function written with flow's operators, whose parameters are named after
        outputs, inputs, or entries of `inputs`, and which returns a blob, or a dict with ``"loss"``
        and others to see. `optimizer` is a name with settings, whose defaults are torch's, or a
        `flow.optimizer` object.
    lr, schedule
        A rate, or a schedule of `flow.optimizer`, for an optimizer by name; `schedule` is one by
        name, such as ``"one_cycle(total_steps=1000)"``, that begins with the rate. Whatever it is,
        `Trainer.learning_rate` overrides it at run time.
    groups
        What differs for some tensors, by shell pattern of their names or a tuple of such: `lr`,
        `weight_decay`, `optimizer`, or `frozen`, as in ``{"*.bias": {"weight_decay": 0.0}}``.
    clip_norm, clip_value
        Limit each number of a gradient to [-clip_value, clip_value], and then the joint norm of all
        gradients to `clip_norm`.
    trained, frozen
        Shell patterns of the names of tensors to train, and not to train; all names count that the
        exporter gave one.
    separate
        Patterns of tensors that the exporter merged because their content is equal, such as zeros:
        each use trains one of its own. What torch says of its parameters is followed without.
    inputs
        Shapes (``{"x": (8, 3, 224, 224)}``), sizes of free dimensions (``{"sequence": 128}``),
        which stay free without, so that texts and images of any size train in one bundle, and the
        inputs that only a loss function reads (``{"target": (("batch", 10), flow.float32)}``).
    logits
        The loss reads what goes into the Softmax, LogSoftmax or Sigmoid that the output ends in:
        ``cross_entropy`` and ``bce_with_logits`` apply their own, and two warn.
    training_mode
        BatchNormalization takes the statistics of the batch and moves the running ones, and Dropout
        drops, in the step alone.
    precision
        Compute products and convolutions in half precision; weights stay as they are.
    on_device
        A bundle to ship, as of a job: random draws depend on the step and not on the past, so that
        a resumed training is an undisturbed one, and a README and the list of operators are added.
    accumulate
        Add the step in two halves: `Trainer.accumulate` sums up gradients of several batches, and
        `Trainer.update` makes one step of their mean.
    ema
        Keep moving averages of the trained tensors, a = ema * a + (1 - ema) * w after each step but
        the first, which makes them the tensors themselves, as in torch; the predict jobs ``ema``
        and ``ema-eval`` compute with them.
    recompute
        Compute activations twice in place of keeping them: True, a number of segments, or names of
        layers. Less memory for more time, results the same to the bit.
    in_place
        Update state in its own buffer where that is proven; False keeps two buffers, and the old
        values where a step fails.
    opset, name, seed, metadata
        The opset (the model's own, at least 18), the name of the job, the seed of random draws,
        texts for the files.
    freezable
        Frozen weights are constants, up to so many bytes in all, and state beyond.
    check_import
        Run the model itself and the imported one once on the same random numbers; a difference
        raises. None leaves out models of more than 256 MB and those in half precision.

    >>> import flow2onnx as flow
    >>> made = flow.make_trainable("model.onnx", "cross_entropy", "adam", lr=1e-3)  # doctest: +SKIP
    >>> made.save("bundle")  # doctest: +SKIP
    """
    return imported.make_trainable(
        model,
        loss,
        optimizer,
        lr=lr,
        schedule=schedule,
        groups=groups,
        clip_norm=clip_norm,
        clip_value=clip_value,
        trained=trained,
        frozen=frozen,
        separate=separate,
        inputs=inputs,
        output=output,
        labels=labels,
        logits=logits,
        training_mode=training_mode,
        precision=precision,
        on_device=on_device,
        accumulate=accumulate,
        ema=ema,
        recompute=recompute,
        in_place=in_place,
        opset=opset,
        name=name,
        seed=seed,
        metadata=metadata,
        freezable=freezable,
        check_import=check_import,
    )


def accelerate(
    model: str | os.PathLike[str] | bytes,
    options: "Options | None" = None,
    *,
    native: bool | Literal["auto"] = "auto",
) -> "tuple[str | os.PathLike[str] | bytes, Options]":
    """A model with native operators in memory: see `flow2onnx.engine.acceleration`."""
    return engine.accelerate(model, options, native=native)


def grad(
    model: "ModelSource",
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    seeds: bool = False,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` that computes the gradients of a model.

    `wrt` are names of, or shell patterns for, inputs and initializers of a real type; without it,
    all such inputs. The gradient of ``x`` is the output ``grad/x``. It is that of the sum of all
    elements of `outputs` (without it, of all real outputs) or, with `seeds`, of the sum weighted by
    inputs ``seed/y``, one of the shape of each output ``y``. Axes that the model leaves free stay
    free; `inputs` fixes sizes, as in `make_trainable`. The model's own outputs come first unless
    `keep_outputs` is false.
    """
    return imported.grad(
        model,
        wrt,
        outputs=outputs,
        seeds=seeds,
        inputs=inputs,
        keep_outputs=keep_outputs,
        opset=opset,
    )


def vjp(
    model: "ModelSource",
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` of the products of cotangents with the Jacobian of a model: uᵀ J.

    Inputs ``cotangent/y`` stand beside the model's own, one for each of `outputs` and of its shape;
    the product for ``x`` is the output ``vjp/x``. Everything else is as in `grad`.
    """
    return imported.vjp(
        model,
        wrt,
        outputs=outputs,
        inputs=inputs,
        keep_outputs=keep_outputs,
        opset=opset,
    )


def jvp(
    model: "ModelSource",
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` of the derivatives of a model along tangents: J v, forward mode.

    Inputs ``tangent/x`` stand beside the model's own, one for each of `wrt` and of its shape; the
    derivative of output ``y`` is ``jvp/y``, zeros where it depends on none of them. Everything
    else is as in `grad`.
    """
    return imported.jvp(
        model,
        wrt,
        outputs=outputs,
        inputs=inputs,
        keep_outputs=keep_outputs,
        opset=opset,
    )


def hvp(
    model: "ModelSource",
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    seeds: bool = False,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` of the products of a Hessian with tangents: H v.

    The Hessian is that of what `grad` differentiates, in all of `wrt` at once. Inputs
    ``tangent/x`` are the direction; outputs are the gradient, ``grad/x``, and the product,
    ``hvp/x``, zeros where the gradient is constant. Everything else is as in `grad`.
    """
    return imported.hvp(
        model,
        wrt,
        outputs=outputs,
        seeds=seeds,
        inputs=inputs,
        keep_outputs=keep_outputs,
        opset=opset,
    )


def jacobian(
    model: "ModelSource",
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` of the derivatives of all elements of outputs in all elements of `wrt`.

    That of ``y`` in ``x`` is the output ``jacobian/y/x``, of the shape of y followed by that of x.
    A Scan computes one row at a time, so that memory holds one walk back and the result; of known
    size, that has at most 2²⁸ elements. Everything else is as in `grad`.
    """
    return imported.jacobian(
        model,
        wrt,
        outputs=outputs,
        inputs=inputs,
        keep_outputs=keep_outputs,
        opset=opset,
    )


def from_training_info(
    model: "ModelSource", *, inputs: Mapping[str, Any] | None = None, name: str | None = None
) -> "TrainableModel":
    """The training step in an ONNX file (path or `onnx.ModelProto`) that has one in the standard's
    TrainingInfoProto, ready to be trained; `inputs` are as in `make_trainable`.
    """
    return imported.from_training_info(model, inputs=inputs, name=name)
