"""Operators that numpy has no function for, by numpy."""

import math

import numpy as np

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def log_softmax(x, axis=-1):
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def softmax(x, axis=-1):
    return np.exp(log_softmax(x, axis))


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def full(function):
    """A reduction over everything, which has shape (1,)."""
    return lambda x: np.reshape(function(x), (1,))


def no_nan(x):
    return np.where(x == 0, 0, 1 / np.where(x == 0, 1, x))


def picked(labels, table):
    """table[..., label] of each sample."""
    labels = labels.reshape(table.shape[:-1])
    return np.take_along_axis(table, labels[..., None].astype(np.int64), -1)[..., 0]


def conv(x, w, strides, before, after, dilations, groups=1):
    """A convolution, channels first, by summing over the taps of the kernel."""
    axes = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    out = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    per_group = x.shape[1] // groups, w.shape[0] // groups
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for g in range(groups):
        xs = x[:, g * per_group[0] : (g + 1) * per_group[0]]
        rows = slice(g * per_group[1], (g + 1) * per_group[1])
        for tap in np.ndindex(*w.shape[2:]):
            where = tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, dilations, out, strides, strict=True)
            )
            letters = "hij"[:axes]
            y[:, rows] += np.einsum(
                f"nc{letters},kc->nk{letters}", xs[(..., *where)], w[(rows, slice(None), *tap)]
            )
    return y


def pool(x, how, kernel, strides, before, after):
    """A pool, channels first; padding takes no part."""
    axes = x.ndim - 2
    pads = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    padded = np.pad(x, pads, constant_values=np.nan)
    out = [(n - k) // s + 1 for n, k, s in zip(padded.shape[2:], kernel, strides, strict=True)]
    y = np.empty((*x.shape[:2], *out))
    for at in np.ndindex(*out):
        window = tuple(slice(i * s, i * s + k) for i, s, k in zip(at, strides, kernel, strict=True))
        y[(..., *at)] = how(padded[(..., *window)], axis=tuple(range(2, 2 + axes)))
    return y


def last(function):
    """A channels-first reference on channels-last blobs."""

    def called(x, *w):
        moved = [np.moveaxis(a, -1, 1) for a in (x, *w)]
        return np.moveaxis(function(*moved), 1, -1)

    return called


def biased(x, bias, axis):
    return x + bias.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
