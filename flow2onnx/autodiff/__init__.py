"""Gradients: one rule for each ONNX operator, and the reverse walk that applies them."""

from flow2onnx.autodiff import rules  # noqa: F401  # imported for the rules it registers
from flow2onnx.autodiff.registry import NOT_DIFFERENTIABLE, has_rule, rule_names
from flow2onnx.autodiff.walk import gradients

__all__ = ["NOT_DIFFERENTIABLE", "gradients", "has_rule", "rule_names"]
