"""Convolutions and their transposes."""

from tests.autodiff.cases.case import NO_DOUBLE, plain


def _conv(note, x, w, branches, *, bias=False, **attrs):
    shapes = [x, w, (w[0],)] if bias else [x, w]
    return plain(
        "Conv", shapes, note, attrs=attrs, step=0.25, lacks=NO_DOUBLE, branches=tuple(branches)
    )


CONVOLUTION = [
    _conv("one-axis", (2, 3, 9), (4, 3, 3), ["conv_transpose", "swapped_conv"], strides=[2]),
    _conv(
        "one-axis-pads", (2, 3, 9), (4, 3, 3), ["conv_transpose", "im2col_by_image"], pads=[2, 1],
        dilations=[2], bias=True,
    ),
    _conv(
        "three-axes", (2, 2, 4, 5, 3), (3, 2, 2, 3, 1), ["conv_transpose", "swapped_conv"],
        strides=[1, 2, 1], pads=[1, 0, 0, 0, 1, 1],
    ),
    _conv(
        "three-axes-pointwise", (2, 4, 2, 3, 2), (3, 4, 1, 1, 1), ["conv", "flat_product"]
    ),
    _conv(
        "groups", (2, 4, 6, 5), (6, 2, 3, 2), ["conv_transpose", "bands"], group=2,
        pads=[1, 0, 2, 1], strides=[2, 1], bias=True,
    ),
    _conv(
        "wide-groups", (1, 32, 4, 5), (4, 16, 2, 3), ["conv_transpose", "grouped_taps"], group=2,
        pads=[1, 0, 0, 2], strides=[2, 1],
    ),
    _conv(
        "small-images", (1, 3, 8, 8), (128, 3, 3, 3), ["conv", "im2col_by_image"],
        pads=[1, 1, 1, 1],
    ),
    _conv("depthwise", (2, 6, 5, 5), (6, 1, 3, 3), ["toeplitz", "toeplitz"], group=6),
    _conv("depthwise-strided", (2, 3, 6, 5), (3, 1, 3, 2), ["toeplitz", "toeplitz"], group=3,
          strides=[2, 1], dilations=[1, 2], pads=[1, 0, 0, 1], bias=True),
    _conv("depthwise-large", (1, 2, 9, 9), (2, 1, 3, 3), ["conv", "bands"], group=2,
          pads=[1, 1, 1, 1]),
    _conv("rows", (128, 8, 34, 32), (2, 8, 3, 2), ["conv_transpose", "row_stack"],
          pads=[0, 0, 0, 1]),
    _conv("rows-one-axis", (128, 8, 1024), (1, 8, 3), ["conv_transpose", "row_stack"],
          dilations=[2], pads=[3, 1]),
    _conv("phases", (2, 148, 5, 4), (148, 148, 7, 7), ["phases", "nhwc_taps"], strides=[2, 3],
          pads=[3, 2, 3, 3]),
    _conv(
        "dilated", (2, 3, 8, 7), (4, 3, 3, 2),
        ["conv_transpose", "im2col_by_image"], dilations=[2, 3],
        pads=[1, 2, 0, 1],
    ),
    _conv("grouped-pointwise", (2, 4, 3, 3), (6, 2, 1, 1), ["conv_transpose", "bands"], group=2),
    _conv(
        "strided-few-channels", (2, 3, 7, 8), (4, 3, 3, 3), ["conv_transpose", "swapped_conv"],
        strides=[2, 3], pads=[1, 1, 1, 1],
    ),
    _conv(
        "few-channels", (2, 3, 6, 5), (4, 3, 3, 2),
        ["conv_transpose", "im2col_by_image"], bias=True,
    ),
    _conv(
        "few-channels-pads", (2, 1, 6, 5), (4, 1, 3, 3),
        ["conv_transpose", "im2col_by_image"], pads=[1, 0, 2, 1]
    ),
    _conv("taps", (2, 6, 6, 5), (4, 6, 3, 2), ["conv_transpose", "nhwc_taps"]),
    _conv(
        "taps-strided", (2, 6, 7, 8), (4, 6, 3, 3), ["conv_transpose", "nhwc_taps"], strides=[2, 3],
        pads=[0, 1, 2, 1], bias=True,
    ),
    _conv(
        "taps-left-over", (1, 5, 8, 6), (3, 5, 2, 2),
        ["conv_transpose", "nhwc_taps"], strides=[3, 4],
    ),
    _conv(
        "product", (2, 5, 5, 4), (128, 5, 3, 3), ["nhwc_product", "nhwc_taps"], pads=[1, 1, 1, 1],
    ),
    _conv(
        "product-even", (1, 3, 4, 5), (128, 3, 2, 3),
        ["nhwc_product", "im2col_by_image"], pads=[1, 0, 0, 2]
    ),
    _conv("product-valid", (1, 5, 4, 4), (130, 5, 2, 2), ["nhwc_product", "nhwc_taps"], bias=True),
    _conv("pointwise", (3, 5, 4, 3), (6, 5, 1, 1), ["conv", "flat_product"], bias=True),
    _conv("pointwise-large", (2, 3, 17, 16), (4, 3, 1, 1), ["conv", "batched_product"]),
    _conv(
        "pointwise-strided", (2, 5, 5, 6), (4, 5, 1, 1),
        ["conv_transpose", "flat_product"], strides=[2, 3],
    ),
    _conv(
        "pointwise-large-strided", (1, 3, 34, 33), (2, 3, 1, 1),
        ["conv_transpose", "batched_product"],
        strides=[2, 2],
    ),
    _conv(
        "pointwise-padded", (2, 3, 4, 3), (4, 3, 1, 1),
        ["conv_transpose", "im2col_by_image"], pads=[1, 0, 0, 1]
    ),
    *(
        _conv(f"auto-{how}", (1, 3, 7, 6), (2, 3, 3, 2), ["conv_transpose", "swapped_conv"],
              strides=[2, 3], auto_pad=how)
        for how in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    _conv("auto-one-axis", (1, 2, 8), (2, 1, 4), ["toeplitz", "toeplitz"], group=2,
          strides=[2], auto_pad="SAME_LOWER"),
    _conv("auto-three-axes", (1, 2, 4, 5, 3), (2, 2, 2, 3, 1), ["conv_transpose", "swapped_conv"],
          strides=[1, 2, 1], auto_pad="SAME_UPPER"),
    _conv("three-axes-groups", (1, 4, 4, 5, 5), (2, 2, 2, 2, 2), ["conv_transpose", "swapped_conv"],
          group=2, dilations=[1, 2, 3], strides=[2, 1, 1], pads=[0, 1, 0, 1, 0, 0], bias=True),
]  # fmt: skip


def _transposed(note, x, w, bias=False, **attrs):
    shapes = [x, w, (w[1] * attrs.get("group", 1),)] if bias else [x, w]
    return plain("ConvTranspose", shapes, note, attrs=attrs, step=0.25, lacks=NO_DOUBLE)


TRANSPOSED = [
    _transposed("", (2, 3, 4, 5), (3, 4, 3, 3)),
    _transposed("strides", (2, 3, 4, 5), (3, 2, 3, 2), strides=[2, 3], output_padding=[1, 2]),
    _transposed("pads", (1, 6, 4, 5), (6, 5, 3, 3), bias=True, strides=[2, 1], pads=[1, 0, 0, 2]),
    _transposed("dilations", (1, 2, 4, 5), (2, 3, 2, 3), dilations=[2, 1]),
    _transposed("groups", (2, 4, 3, 3), (4, 3, 2, 2), bias=True, group=2, strides=[2, 2]),
    _transposed("one-axis", (2, 3, 5), (3, 4, 3), strides=[2]),
    *(
        _transposed(f"auto-{how}", (1, 2, 4, 5), (2, 3, 3, 2), strides=[2, 3], auto_pad=how)
        for how in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    *(
        _transposed(
            f"output-shape-{how}", (1, 2, 4, 5), (2, 3, 3, 2), strides=[2, 3], auto_pad=how,
            output_shape=[8, 13],
        )
        for how in ("SAME_UPPER", "SAME_LOWER", "NOTSET")
    ),
    _transposed(
        "output-shape-larger", (1, 2, 3, 2), (2, 3, 2, 2), strides=[3, 3], output_shape=[9, 6]
    ),
    _transposed(
        "all", (2, 4, 3, 4), (4, 3, 3, 2), bias=True, group=2, strides=[3, 2], dilations=[2, 3],
        pads=[1, 0, 2, 1], output_padding=[2, 1],
    ),
    _transposed(
        "three-axes", (1, 4, 2, 3, 2), (4, 2, 2, 1, 3), bias=True, group=2, strides=[2, 1, 3],
        output_padding=[1, 0, 2], pads=[0, 0, 1, 1, 0, 0],
    ),
    _transposed(
        "one-axis-all", (2, 3, 5), (3, 2, 3), bias=True, strides=[3], dilations=[2],
        output_padding=[2], pads=[2, 1], group=3,
    ),
]  # fmt: skip
