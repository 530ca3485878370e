"""The table of what each native operator brings."""

import pytest

from benchmarks import native

ROW = {
    "workload": "lenet", "threads": 1, "differ": ["Conv"],
    "ms": {"none": 2.0, "Fused": 2.0, "Conv": 2.0},
    "ratio": {"none": 2.5, "Fused": 1.1, "Conv": 1.5},
}  # fmt: skip


def test_kinds_are_those_that_steps_use() -> None:
    assert native.kinds_in("lenet", {"Fused": 3, "MaxPoolGradient": 1, "Conv": 0}) == [
        "Fused", "MaxPool and gradient",
    ]  # fmt: skip


def test_convolutions_may_use_winograds_algorithm() -> None:
    assert native.kinds_in("lenet", {"ConvWeightGradient": 1}) == [
        "ConvWeightGradient", "Winograd's algorithm",
    ]  # fmt: skip
    # nothing leaves predictions without it
    assert native.kinds_in("lenet-b1", {"Conv": 1}) == ["Conv"]


def test_ratios_are_times_without_over_those_with_all() -> None:
    (grid,) = native.tables({"rows": [ROW]})
    assert dict(grid.lines) == {"all, ms": "2", "none": "2.50", "Fused": "1.10"}


def test_sides_whose_results_differ_have_no_ratio() -> None:
    assert native.ratio(ROW, "Conv") is None


def test_a_row_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["native", "--rows", "lenet,nothing"])
    with pytest.raises(SystemExit):
        native.main()
    assert "there is no row nothing; there are mlp, lenet" in capsys.readouterr().err
