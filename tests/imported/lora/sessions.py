"""Folders and adapters on the stock runtime."""

import numpy as np
import onnxruntime as ort


def open_folder(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return ort.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def feeds(folder, ids):
    """The feeds of a served model for texts with nothing before them."""
    shape = folder.shape
    empty = np.zeros((len(ids), shape.shared, 0, shape.head), shape.dtype)
    names = [f"past_key_values.{i}.{n}" for i in range(shape.layers) for n in ("key", "value")]
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), **dict.fromkeys(names, empty)}


def active(path):
    """Run options with an adapter file, and the adapter, which has to live as long."""
    adapter = ort.LoraAdapter()
    adapter.Load(str(path))
    options = ort.RunOptions()
    options.add_active_adapter(adapter)
    return options, adapter


def batch(shape, seed=0, rows=2, length=12):
    """Tokens, masks and labels: the next token, none for the first three and the last."""
    ids = np.random.default_rng(seed).integers(0, shape.words, (rows, length))
    labels = np.roll(ids, -1, 1)
    labels[:, -1] = labels[:, :3] = -100
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}


def cross_entropy(logits, labels):
    """The mean of -log p(label) over the labels that count, in double precision."""
    scores = logits.astype(np.float64)
    scores = scores - scores.max(-1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    own = np.take_along_axis(logs, np.maximum(labels, 0)[..., None], -1)[..., 0]
    return -own[labels != -100].mean()
