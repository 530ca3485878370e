"""Resizing, and blocks of an image as channels."""

import numpy as np

from tests.autodiff.cases.case import NO_DOUBLE, Case, plain


def _resized(note, x, scales, **attrs):
    def make(b, x):
        return b.Resize(x, None, np.asarray(scales, np.float32), **attrs)

    return Case("Resize", make, [x], note, step=0.5, lacks=NO_DOUBLE)


IMAGE = (2, 2, 3, 4)
RESIZE = [
    _resized("", IMAGE, [1, 1, 2, 3]),
    *(
        _resized(f"{how}-{rounding}", IMAGE, [1, 1, 1.5, 2.5], nearest_mode=rounding,
                 coordinate_transformation_mode=how)
        for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    *(
        _resized(f"linear-{how}", IMAGE, [1, 1, 2, 2.5], mode="linear",
                 coordinate_transformation_mode=how)
        for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ),
    _resized("smaller", IMAGE, [1, 1, 0.7, 0.5], mode="linear"),
    Case("Resize", lambda b, x: b.Resize(x, None, None, [2, 2, 7, 5], mode="linear"), [IMAGE],
         "sizes", step=0.5, lacks=NO_DOUBLE),
    *(
        _resized(f"cubic-{how}", IMAGE, [1, 1, 2, 1.5], mode="cubic",
                 coordinate_transformation_mode=how, **attrs)
        for how, attrs in (
            ("half_pixel", {}),
            ("half_pixel", {"cubic_coeff_a": -0.5, "exclude_outside": 1}),
            ("asymmetric", {}),
            ("align_corners", {"cubic_coeff_a": -0.5}),
            ("pytorch_half_pixel", {"exclude_outside": 1}),
            ("half_pixel_symmetric", {}),
        )
    ),
    _resized("cubic-smaller", IMAGE, [1, 1, 0.7, 0.5], mode="cubic"),
    *(
        _resized(f"symmetric-{mode}", IMAGE, [1, 1, 1.4, 0.6], mode=mode,
                 coordinate_transformation_mode="half_pixel_symmetric")
        for mode in ("nearest", "linear")
    ),
    *(
        _resized(f"antialias-{mode}-{strict}-{factors}", (1, 2, 7, 6), [1, 1, *factors], mode=mode,
                 antialias=1, exclude_outside=strict)
        for mode in ("linear", "cubic")
        for strict in (0, 1)
        for factors in ((0.5, 0.4), (1.7, 0.6))
    ),
    _resized("antialias-corners", (1, 2, 7, 6), [1, 1, 0.6, 0.5], mode="linear", antialias=1,
             coordinate_transformation_mode="align_corners"),
    *(
        Case("Resize", lambda b, x, mode=mode: b.Resize(
            x, np.float32([0, 0, 0.2, -0.3, 1, 1, 0.9, 0.7]), None, [1, 2, 4, 5], mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.0),
            [(1, 2, 5, 5)], f"cropped-{mode}", step=0.5, lacks=NO_DOUBLE)
        for mode in ("nearest", "linear", "cubic")
    ),
    *(
        Case("Resize", lambda b, x, policy=policy: b.Resize(
            x, None, None, [7, 5], mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy),
            [IMAGE], policy, step=0.5, lacks=NO_DOUBLE)
        for policy in ("stretch", "not_larger", "not_smaller")
    ),
    Case("Resize", lambda b, x: b.Resize(x, None, np.float32([1.3, 2]), axes=[-1, 2]), [IMAGE],
         "axes", step=0.5, lacks=NO_DOUBLE),
    _resized("linear-three-axes", (1, 2, 3, 2, 4), [1, 1, 2, 1.5, 0.6], mode="linear"),
    _resized("nearest-batch", (3, 2, 4), [2, 1.5, 0.5]),
    _resized("linear-one-axis", (2, 3), [1.5, 2], mode="linear"),
    *(
        plain("DepthToSpace", [(2, 8, 2, 3)], mode, attrs={"blocksize": 2, "mode": mode}, step=0.5)
        for mode in ("DCR", "CRD")
    ),
    plain("SpaceToDepth", [(2, 3, 4, 6)], attrs={"blocksize": 2}, step=0.5),
    *(
        Case("Upsample", lambda b, x, mode=mode, factors=factors: b.Upsample(
            x, np.float32(factors), mode=mode), [IMAGE], f"{mode}-{factors[2]}", step=0.5,
            lacks=NO_DOUBLE, opset=9)
        for mode in ("nearest", "linear")
        for factors in ([1, 1, 2, 2.5], [1, 1, 0.7, 0.5])
        if min(factors) >= 1
    ),
]  # fmt: skip
