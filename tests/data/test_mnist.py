"""`load_mnist`: batches, the files it reads, and what stands in for them."""

import hashlib
import logging
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow2onnx.data.mnist import load_mnist
from flow2onnx.errors import ArgumentError, FlowError, UnsupportedError


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOW2ONNX_MNIST", raising=False)
    monkeypatch.chdir(tmp_path)


def arrays(train: int = 25, test: int = 12, first: int = 0) -> dict[str, np.ndarray]:
    images = np.arange((train + test) * 784) % 256
    labels = (np.arange(train + test) + first) % 10
    shaped = images.astype(np.uint8).reshape(-1, 28, 28)
    return {
        "x_train": shaped[:train],
        "y_train": labels[:train].astype(np.uint8),
        "x_test": shaped[train:],
        "y_test": labels[train:].astype(np.uint8),
    }


def saved(path: Path, **changed: np.ndarray) -> Path:
    np.savez(path, **(arrays() | changed))
    return path


# --- files --------------------------------------------------------------------------------------
def test_batches_are_the_images_in_order(tmp_path: Path) -> None:
    file = saved(tmp_path / "given.npz")
    (x, y), (test_x, test_y) = load_mnist(10, 4, path=file)
    assert (x.shape, x.dtype) == ((2, 10, 1, 28, 28), np.float32)
    assert (y.shape, y.dtype) == ((2, 10), np.int32)
    assert (test_x.shape, test_y.shape) == ((3, 4, 1, 28, 28), (3, 4))
    source = arrays()
    np.testing.assert_array_equal(
        x.reshape(20, 28, 28), source["x_train"][:20].astype(np.float32) / np.float32(255)
    )
    np.testing.assert_array_equal(y.ravel(), source["y_train"][:20])
    np.testing.assert_array_equal(test_y.ravel(), source["y_test"])
    assert (x.min(), x.max()) == (0, 1)


def test_nhwc_moves_the_channel(tmp_path: Path) -> None:
    file = saved(tmp_path / "given.npz")
    (nchw, _), _ = load_mnist(5, 4, path=file)
    (nhwc, _), _ = load_mnist(5, 4, data_format="NHWC", path=str(file))
    assert nhwc.shape == (5, 5, 28, 28, 1)
    np.testing.assert_array_equal(nhwc[..., 0], nchw[:, :, 0])


def test_the_path_comes_before_the_directory_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def first() -> int:
        return int(load_mnist(5, 4)[0][1][0, 0])

    np.savez(tmp_path / "named.npz", **arrays(first=3))
    monkeypatch.setenv("FLOW2ONNX_MNIST", str(tmp_path / "named.npz"))
    assert first() == 3
    np.savez(tmp_path / "mnist.npz", **arrays(first=2))
    assert first() == 2
    np.savez(tmp_path / "given.npz", **arrays(first=1))
    assert int(load_mnist(5, 4, path=tmp_path / "given.npz")[0][1][0, 0]) == 1
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "mnist.npz", **arrays(first=4))
    assert int(load_mnist(5, 4, out_dir="data")[0][1][0, 0]) == 4
    assert not caplog.records


def test_a_file_asked_for_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match=r"no file 'absent\.npz'") as caught:
        load_mnist(path="absent.npz")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("path names it")
    assert "test_mnist.py:" in str(caught.value)
    monkeypatch.setenv("FLOW2ONNX_MNIST", "gone.npz")
    with pytest.raises(ArgumentError, match=r"no file 'gone\.npz'") as caught:
        load_mnist()
    assert caught.value.hint is not None
    assert "FLOW2ONNX_MNIST names it" in caught.value.hint


def test_a_given_hash_is_compared(tmp_path: Path) -> None:
    file = saved(tmp_path / "given.npz")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    load_mnist(5, 4, hash_check=digest, path=file)
    with pytest.raises(ArgumentError, match=f"has the SHA-256 {digest}, not abc"):
        load_mnist(5, 4, hash_check="abc", path=file)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_train": np.zeros((25, 784), np.uint8)}, "x_train should be uint8 of shape"),
        ({"x_train": np.zeros((25, 28, 28), np.float32)}, "it is float32 of shape"),
        ({"x_test": np.zeros((12, 28, 27), np.uint8)}, "x_test should be uint8 of shape"),
        ({"y_train": np.zeros(24, np.uint8)}, r"y_train should be integers of shape \(25,\)"),
        ({"y_test": np.zeros(12, np.float64)}, "y_test should be integers .* it is float64"),
        ({"y_test": np.full(12, 10, np.uint8)}, "y_test should be digits from 0 to 9"),
        ({"y_test": np.full(12, -1, np.int8)}, "y_test should be digits from 0 to 9"),
        ({"y_train": np.array([None] * 25)}, r"cannot be read as an \.npz file"),
    ],
)
def test_wrong_arrays_are_named(
    tmp_path: Path, changed: dict[str, np.ndarray], message: str
) -> None:
    file = saved(tmp_path / "given.npz", **changed)
    with pytest.raises(ArgumentError, match=message):
        load_mnist(5, 4, path=file)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not an archive", b"\x93NUMPY\x01"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "given.npz"
    file.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"cannot be read as an \.npz file") as caught:
        load_mnist(path=file)
    assert caught.value.hint is not None
    assert "mnist.npz" in caught.value.hint


def test_missing_and_single_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", x_train=arrays()["x_train"], y_train=arrays()["y_train"])
    with pytest.raises(ArgumentError, match="no array x_test, y_test"):
        load_mnist(path=tmp_path / "half.npz")
    np.save(tmp_path / "single.npy", arrays()["x_train"])
    with pytest.raises(ArgumentError, match="only single"):
        load_mnist(path=tmp_path / "single.npy")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("fuzz") / "whole.npz")


def test_headers_of_python_2_are_read_without_a_word(whole: Path) -> None:
    """Its numbers may end in an L, of which numpy warns."""
    with zipfile.ZipFile(whole) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    old = whole.with_name("old.npz")
    with zipfile.ZipFile(old, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content.replace(b", 28, 28), }  ", b", 28L, 28), } ", 1))
    found, expected = load_mnist(5, 4, path=old), load_mnist(5, 4, path=whole)
    np.testing.assert_array_equal(found[0][0], expected[0][0])


def test_a_header_that_claims_less_is_refused(whole: Path) -> None:
    content = bytearray(whole.read_bytes())
    at = content.index(b"\x93NUMPY") + 8  # the length of the header, a multiple of 16 too short
    content[at] -= 16
    damaged = whole.with_name("damaged.npz")
    damaged.write_bytes(content)
    with pytest.raises(FlowError):
        load_mnist(5, 4, path=damaged)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_still_right(whole: Path, data: st.DataObject) -> None:
    content = bytearray(whole.read_bytes())
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(content) - 1)))
    spots = data.draw(
        st.lists(st.one_of(st.integers(0, 200), st.integers(0, len(content) - 1)), max_size=4)
    )
    for spot in spots:
        content[spot] ^= data.draw(st.integers(1, 255))
    damaged = whole.with_name("damaged.npz")
    damaged.write_bytes(content[:cut])
    expected = load_mnist(5, 4, path=whole)
    try:
        found = load_mnist(5, 4, path=damaged)
    except FlowError:
        return
    for part, right in zip(found, expected, strict=True):
        for array, wanted in zip(part, right, strict=True):
            np.testing.assert_array_equal(array, wanted)


# --- digits -------------------------------------------------------------------------------------
def test_digits_stand_in_and_a_warning_says_so(caplog: pytest.LogCaptureFixture) -> None:
    (x, y), (test_x, test_y) = load_mnist()
    assert (x.shape, test_x.shape) == ((14, 100, 1, 28, 28), (3, 100, 1, 28, 28))
    assert (y.shape, test_y.shape) == ((14, 100), (3, 100))
    assert (x.dtype, y.dtype) == (np.float32, np.int32)
    assert (x.min(), x.max()) == (0, 1)
    (record,) = [r for r in caplog.records if r.name == "flow2onnx.data"]
    assert record.levelno == logging.WARNING
    for part in ("scikit-learn's digits", "no mnist.npz", "path=", "FLOW2ONNX_MNIST"):
        assert part in record.getMessage()


def test_digits_are_the_same_every_time() -> None:
    for once, again in zip(load_mnist(), load_mnist(), strict=True):
        np.testing.assert_array_equal(once[0], again[0])
        np.testing.assert_array_equal(once[1], again[1])


def test_a_fifth_of_every_digit_is_held_out() -> None:
    (x, y), (test_x, test_y) = load_mnist(1, 1)
    train, test = np.bincount(y.ravel()), np.bincount(test_y.ravel())
    assert train.sum() + test.sum() == 1797
    np.testing.assert_allclose(test / (train + test), 0.2, atol=0.005)
    every = np.concatenate([x, test_x]).reshape(1797, 28, 28)
    small = every[:, 3:27:3, 3:27:3] * 16  # one pixel of each 3×3 block
    from sklearn.datasets import load_digits

    wanted = load_digits().images
    np.testing.assert_array_equal(
        np.unique(small.reshape(1797, 64), axis=0), np.unique(wanted.reshape(1797, 64), axis=0)
    )
    assert not every[:, :2].any()
    assert not every[:, :, -2:].any()


def test_digits_come_in_no_order() -> None:
    (_, y), (_, test_y) = load_mnist()
    assert (np.diff(y.ravel()) < 0).mean() > 0.3
    assert (np.diff(test_y.ravel()) < 0).mean() > 0.3


def test_images_keep_their_labels() -> None:
    (x, y), (test_x, test_y) = load_mnist()
    means = np.stack([x.reshape(-1, 784)[y.ravel() == d].mean(axis=0) for d in range(10)])
    distance = ((test_x.reshape(-1, 1, 784) - means) ** 2).sum(axis=2)
    assert (distance.argmin(axis=1) == test_y.ravel()).mean() > 0.85


def test_without_scikit_learn_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UnsupportedError, match="scikit-learn") as caught:
        load_mnist()
    assert caught.value.hint is not None
    assert "pip install scikit-learn" in caught.value.hint
    assert "path=" in caught.value.hint


# --- arguments ----------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [0, -1, 26, 10.0, True, None])
def test_batches_have_to_fit(tmp_path: Path, size: int) -> None:
    file = saved(tmp_path / "given.npz")
    with pytest.raises(ArgumentError, match="train_batch_size takes an int from 1 to 25"):
        load_mnist(size, 4, path=file)


def test_test_batches_have_to_fit(tmp_path: Path) -> None:
    file = saved(tmp_path / "given.npz")
    with pytest.raises(ArgumentError, match="test_batch_size takes an int from 1 to 12"):
        load_mnist(5, 13, path=file)


def test_other_layouts_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'NCHW' or 'NHWC'; got 'CHW'"):
        load_mnist(data_format="CHW")
