"""Native operators for models that are about to run on a CPU, and the passes that use them.

flow2onnx finds the module `flow2onnx_native.accelerator` by its entry point when this package is
installed, and works without it. Exported models never use these operators.
"""
