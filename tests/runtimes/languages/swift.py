"""Swift: a package over the C runtime, for whoever has its compiler."""

from tests.runtimes.languages.language import Language

LANGUAGE = Language(
    "Swift",
    ("swift",),
    sources=("runtime/swift/Sources/Flow2Onnx/*.swift",),
    readme="runtime/swift/README.md",
    unused=("f2o_dtype_name", "f2o_tensors_find"),
    not_run="written, and run by nobody here: there is no Swift compiler where the tests are; "
    "the commands are in [swift](swift/README.md)",
)
