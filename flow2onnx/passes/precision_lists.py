"""Which operators mixed precision computes in half precision, after OneFlow's own lists."""

__all__ = ["CLEAR", "FAILING_IN_HALF", "GREY", "WHITE"]

# Matrix products and convolutions: fast in half precision, and summed in float32 by the kernels.
WHITE = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})

# In half precision between two operators that are: elementwise, without a large range.
GREY = frozenset({"Add", "AveragePool", "Div", "Dropout", "Gelu", "GlobalAveragePool", "Mul",
                  "Sigmoid", "Sub", "Sum", "Tanh"})  # fmt: skip

# What their input is: they choose, move or repeat elements and round nothing. Gather is not among
# them, because its gradient adds up.
CLEAR = frozenset({"Concat", "Flatten", "Identity", "MaxPool", "Pad", "Relu", "Reshape", "Slice",
                   "Split", "Squeeze", "Transpose", "Trilu", "Unsqueeze"})  # fmt: skip

# Everything else stays in float32. OneFlow let softmax and the normalizations follow too; here
# they are composed of sums and exponentials, which lose digits and overflow in half precision.

# The registry lists kernels for these; they fail when they add up float16.
FAILING_IN_HALF = frozenset({"ScatterElements", "ScatterND"})
