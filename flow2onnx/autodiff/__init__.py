"""Gradients: one rule for each ONNX operator, the reverse walk, and what is made of walks."""

from flow2onnx.autodiff import rules  # noqa: F401  # imported for the rules it registers
from flow2onnx.autodiff.forward import hessian_products, tangents
from flow2onnx.autodiff.jacobian import jacobians
from flow2onnx.autodiff.registry import NOT_DIFFERENTIABLE, has_rule, rule_names
from flow2onnx.autodiff.walk import gradients

__all__ = [
    "NOT_DIFFERENTIABLE",
    "gradients",
    "has_rule",
    "hessian_products",
    "jacobians",
    "rule_names",
    "tangents",
]
