"""Products of few bits: every one runs, and means what its weights say; no time is asserted."""

import sys

import numpy as np
import pytest

from benchmarks import few_bits


def dequantize(product: few_bits.Product, size: int, bits: int) -> np.ndarray:
    """The weight that blocks stand for, as (inputs, outputs)."""
    packed = product.constants["w"]
    numbers = np.stack([packed & 15, packed >> 4], -1) if bits == 4 else packed
    numbers = numbers.reshape(size, -1, few_bits.BLOCK).astype(np.float64) - 2 ** (bits - 1)
    return (numbers * product.constants["scales"].reshape(size, -1, 1)).reshape(size, size).T


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("level", [0, 4])
def test_blocks_are_the_product_of_what_they_stand_for(bits, level):
    product, x = few_bits.blocks(64, bits, level), np.eye(3, 64, dtype=np.float32)
    (y,) = product.session(3).run(None, {"x": x})
    weight = dequantize(product, 64, bits)
    np.testing.assert_allclose(y, weight[:3], atol=0.02 * abs(weight).max())


def test_the_program_prints_a_number_for_each(monkeypatch, capsys):
    arguments = ["few_bits", "--rows", "1,3", "--size", "64", "--seconds", "0.01"]
    monkeypatch.setattr(sys, "argv", arguments)
    few_bits.main()
    told = capsys.readouterr().out
    assert "weights 64 by 64" in told
    assert all(name in told for name in few_bits.PRODUCTS)
