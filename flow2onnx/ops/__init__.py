"""The operators, by family. Importing a family publishes it; a new one is one more line here."""

from flow2onnx.ops import (  # noqa: F401  # imported for what they register
    arithmetic,
    array,
    conv,
    indexing,
    initializers,
    layers,
    losses,
    nn,
    pool,
    reduce,
    unary,
    variable,
)
