"""Models damaged at random: an error of ours, or a trainable model, and nothing else."""

import random

import onnx
import pytest

import flow2onnx as flow
from flow2onnx.errors import FlowError
from tests.imported import models

BASES = (models.perceptron(4), models.convolutional(4))
TEXTS = ["", "x", "scores", "p", "Conv", "Loop", "com.microsoft", "\0", "value"]
BLOBS = [b"", b"x", b"\xff", b"scores", b"com.microsoft", b"\0"]
NUMBERS = [0, 1, -1, 2, 7, 16, 2**31 - 1, 2**40, -(2**63)]
REALS = [0.0, -1.0, float("nan"), float("inf")]


def damaged_bytes(rng, content):
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        place = rng.randrange(len(data) or 1)
        kind = rng.randrange(4)
        if kind == 0 and data:
            data[place] = rng.randrange(256)
        elif kind == 1:
            del data[place : place + rng.randrange(1, 9)]
        elif kind == 2:
            data[place:place] = rng.randbytes(rng.randrange(1, 5))
        elif kind == 3:
            del data[place:]
    return bytes(data)


def messages(message):
    yield message
    for field, content in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            parts = [content] if hasattr(content, "ListFields") else content
            for part in parts:
                yield from messages(part)


def value(rng, field):
    if field.type == field.TYPE_BYTES:
        return rng.choice(BLOBS)
    if field.cpp_type == field.CPPTYPE_STRING:
        return rng.choice(TEXTS)
    is_real = field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE)
    return rng.choice(REALS if is_real else NUMBERS)


def change_list(rng, field, items):
    is_message, kind = field.type == field.TYPE_MESSAGE, rng.randrange(4)
    if not len(items):
        items.add() if is_message else items.append(value(rng, field))
    elif kind == 0:
        del items[rng.randrange(len(items))]
    elif kind == 1:
        del items[:]
    elif is_message:
        items.add().CopyFrom(items[rng.randrange(len(items) - 1 or 1)])
    else:
        items[rng.randrange(len(items))] = value(rng, field)


def damaged_fields(rng, model):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(rng.choice([1, 1, 2, 3])):
        message = rng.choice(list(messages(copy)))
        field = rng.choice(list(message.DESCRIPTOR.fields))
        content = getattr(message, field.name)
        try:
            if hasattr(content, "append") or hasattr(content, "add"):
                change_list(rng, field, content)
            elif field.type != field.TYPE_MESSAGE:
                setattr(message, field.name, value(rng, field))
            elif rng.random() < 0.5:
                message.ClearField(field.name)
            else:
                content.SetInParent()
        except (TypeError, ValueError):
            continue  # protobuf takes no such value
    return copy


def attempt(seed, tmp_path):
    rng = random.Random(seed)
    base = rng.choice(BASES)
    if seed % 3:
        given = damaged_fields(rng, base)
    else:
        given = tmp_path / "damaged.onnx"
        given.write_bytes(damaged_bytes(rng, base.SerializeToString()))
    try:
        made = flow.make_trainable(given, "cross_entropy", "sgd", training_mode=seed % 2 == 1)
    except FlowError:
        return False
    return bool(made.trained)


def sweep(seeds, tmp_path):
    """How many of the damaged models could still be trained; a crash names its seed."""
    kept = 0
    for seed in seeds:
        try:
            kept += attempt(seed, tmp_path)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return kept


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy on what a damaged constant holds
def test_damaged_models(tmp_path):
    kept = sweep(range(100), tmp_path)
    assert 0 < kept < 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_more_damaged_models(tmp_path):
    kept = sweep(range(100, 3000), tmp_path)
    assert 0 < kept < 2900
