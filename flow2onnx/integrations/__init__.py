"""Other people's tools in a line each: a module for each package, which is imported with it.

`from flow2onnx.integrations.mlflow import MlflowLog`, and so on; docs/integrations.md has them all.
Bundles, trainers and files go in, so that nothing here needs the compiler.
"""
