"""`flow.losses`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def add_loss(loss: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]]) -> None:
    """Minimise the mean of `loss` too, under the job's `config.train` settings."""
def bce(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """-(y log p + (1 - y) log(1 - p)) of probabilities: torch's BCELoss, no log below -100."""
def bce_with_logits(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], pos_weight: _typing.Any = None, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """max(x, 0) - x y + log(1 + e^-|x|) of scores: torch's BCEWithLogitsLoss.

    With `pos_weight` w, a number or what broadcasts to the output such as one number for each of
    its last axis, (1 - y) x + (1 + (w - 1) y) (max(-x, 0) + log(1 + e^-|x|)).
    """
def cosine(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """1 - cos(output, y) over the last axis: cosine_embedding of pairs that belong together."""
def cosine_embedding(first: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], second: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], margin: _builtins.float = 0.0, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """1 - cos(first, second) where the label is 1, max(0, cos - margin) where it is -1.

    torch's CosineEmbeddingLoss; vectors are (batch, size), labels (batch).
    """
def cross_entropy(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | None = None, ignore_index: _builtins.int = -100, label_smoothing: _builtins.float = 0.0, weight: _typing.Any = None, probabilities: _builtins.bool = False, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """-w[y] log softmax(output)[y], over the sum of w[y]: torch's CrossEntropyLoss.

    Labels y are class numbers, without those that are `ignore_index`; `weight` w has a number for
    each class. Smoothing takes (1 - s) of that and s / classes of -sum of w log softmax(output)
    (Szegedy et al., "Rethinking the Inception Architecture", 2016, section 7). With `probabilities`
    labels have the shape of the output, and the sum is divided by their number.
    """
def ctc(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], input_lengths: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target_lengths: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blank: _builtins.int = 0, zero_infinity: _builtins.bool = False, logits: _builtins.bool = False, batch_first: _builtins.bool = False, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """-log of the probability that the output spells the labels: torch's CTCLoss.

    The output are logarithms of probabilities (time, batch, classes), or scores of any size with
    `logits`; labels are (batch, longest). Lengths say how much of a row counts. The mean is of the
    quotients by the lengths of the labels. A text that cannot be spelt in its time costs infinity
    and has a gradient of 0; `zero_infinity` makes that 0. Graves et al., "Connectionist Temporal
    Classification: Labelling Unsegmented Sequence Data with Recurrent Neural Networks", 2006.
    """
def dice(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], smooth: _builtins.float = 1.0, squared: _builtins.bool = True, sigmoid: _builtins.bool = True) -> _flow2onnx_trace_blob.Blob:
    """1 - (2 sum p y + smooth) / (sum p² + sum y² + smooth), the mean over the batch.

    p is the sigmoid of the output, or without `sigmoid` the output itself; sums are over all axes
    but the first. Milletari et al., "V-Net: Fully Convolutional Neural Networks for Volumetric
    Medical Image Segmentation", 2016, section 3, with `smooth` in both parts so that an empty mask
    is no division by 0; not `squared`, the sums below are of p and y.
    """
def focal(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], gamma: _builtins.float = 2.0, alpha: _builtins.float | None = 0.25, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """-alpha_t (1 - p_t)^gamma log p_t of scores against labels of 0 and 1.

    p_t is the sigmoid of the score where the label is 1, and 1 minus it where it is 0; alpha_t is
    alpha and 1 - alpha, or 1 for None. Lin et al., "Focal Loss for Dense Object Detection", 2017,
    formula 5; as torchvision's sigmoid_focal_loss.
    """
def gaussian_nll(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], variance: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], eps: _builtins.float = 1e-06, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """(log v + (output - y)² / v) / 2 with v = max(variance, eps): torch's GaussianNLLLoss."""
def hinge(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """max(0, 1 - x y), labels -1 and 1: Cortes and Vapnik, "Support-Vector Networks", 1995."""
def hinge_embedding(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], margin: _builtins.float = 1.0, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """x where the label is 1, max(0, margin - x) where it is -1: torch's HingeEmbeddingLoss."""
def huber(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], delta: _builtins.float = 1.0, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """d²/2 up to a difference d of `delta`, delta (d - delta/2) beyond: torch's HuberLoss.

    Huber, "Robust Estimation of a Location Parameter", 1964.
    """
def info_nce(first: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], second: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], temperature: _builtins.float = 0.07, normalize: _builtins.bool = True, symmetric: _builtins.bool = False) -> _flow2onnx_trace_blob.Blob:
    """-log of the share of e^(s_ii) in the sum of e^(s_ij) over j, s = first secondᵀ / temperature.

    Row i of both is one pair, all other rows are its negatives: van den Oord et al.,
    "Representation Learning with Contrastive Predictive Coding", 2018, formula 4. Rows are made
    unit vectors unless told; `symmetric` is the mean of that and of the sums over i (Radford et
    al., "Learning Transferable Visual Models From Natural Language Supervision", 2021).
    """
def kl(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], log_target: _builtins.bool = False, reduction: _typing.Literal['batchmean', 'mean', 'sum'] = 'batchmean') -> _flow2onnx_trace_blob.Blob:
    """y (log y - output), 0 where y is, of logarithms of probabilities: torch's KLDivLoss.

    Of the sum divided by the first axis, unless told. With `log_target` labels are logarithms too.
    """
def l1(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """|output - y|: torch's L1Loss."""
def margin_ranking(first: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], second: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], margin: _builtins.float = 0.0, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """max(0, margin - y (first - second)) for labels of 1, where first leads, and -1.

    torch's MarginRankingLoss.
    """
def mse(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """(output - y)²: torch's MSELoss."""
def multi_margin(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], p: _builtins.int = 1, margin: _builtins.float = 1.0, weight: _typing.Any = None, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """w[y] times the sum over classes but y of max(0, margin - x[y] + x)^p, over their number.

    Scores x are (batch, classes): torch's MultiMarginLoss.
    """
def nll(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | None = None, ignore_index: _builtins.int = -100, weight: _typing.Any = None, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """-w[y] output[y], over the sum of w[y], of logarithms of probabilities: torch's NLLLoss."""
def poisson_nll(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], log_input: _builtins.bool = True, eps: _builtins.float = 1e-08, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """e^x - y x of the logarithm of a rate, or x - y log(x + eps): torch's PoissonNLLLoss."""
def smooth_l1(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], beta: _builtins.float = 1.0, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """d²/(2 beta) up to a difference d of `beta`, d - beta/2 beyond: torch's SmoothL1Loss.

    Girshick, "Fast R-CNN", 2015, formula 3; l1 for a beta of 0.
    """
def soft_margin(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """log(1 + e^(-x y)) for labels of -1 and 1: torch's SoftMarginLoss."""
def softmax_focal(output: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], gamma: _builtins.float = 2.0, axis: _builtins.int | None = None, ignore_index: _builtins.int = -100, weight: _typing.Any = None, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """-w[y] (1 - p[y])^gamma log p[y] with p = softmax(output), over the number of labels.

    Lin et al., "Focal Loss for Dense Object Detection", 2017, formula 5 for several classes.
    """
def triplet(anchor: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], positive: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], negative: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], margin: _builtins.float = 1.0, p: _builtins.float = 2.0, eps: _builtins.float = 1e-06, swap: _builtins.bool = False, reduction: _typing.Literal['mean', 'sum'] = 'mean') -> _flow2onnx_trace_blob.Blob:
    """max(0, margin + |anchor - positive + eps| - |anchor - negative + eps|) in the p-norm.

    torch's TripletMarginLoss over the last axis: Schroff et al., "FaceNet", 2015. With `swap` the
    distance of positive and negative counts where it is less (Balntas et al., "Learning shallow
    convolutional feature descriptors with triplet losses", 2016).
    """
