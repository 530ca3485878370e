"""The first contact with a GPU, rehearsed over the stand-in: no check of it fails there."""

import json

import pytest

from tests.gpu import first_contact


def rehearse(folder, *given):
    code = first_contact.main(["--rehearse", "--out", str(folder), *given])
    found = json.loads((folder / "first_contact.json").read_text())
    return code, found


def outcomes(checks):
    return {name: facts["outcome"] for name, facts in checks.items()}


def test_what_opens_and_where_data_go(tmp_path):
    code, found = rehearse(tmp_path, "environment", "paths")
    assert code == 0, found
    assert set(outcomes(found["environment"])) == {"runtime", "memory", "tensorrt"}
    assert len(found["paths"]) == 5
    assert "libnvinfer" in found["environment"]["tensorrt"]["why"]


def test_a_network_runs_on_both_and_captured(tmp_path):
    code, found = rehearse(tmp_path, "zoo", "capture", "--rows", "mlp")
    assert code == 0, found
    assert found["zoo"]["mlp"]["elsewhere"] == {}
    assert len(found["capture"]["mlp"]["captured"]) == 3


def test_a_network_runs_with_native_operators_and_without(native, tmp_path):
    code, found = rehearse(tmp_path, "native", "--rows", "mlp")
    assert code == 0, found
    assert found["native"]["mlp"]["used"]["CrossEntropy"] == 1
    assert len(found["native"]["mlp"]["plain"]) == 3


def test_without_native_operators_it_says_what_to_install(tmp_path):
    code, found = rehearse(tmp_path, "native")
    assert code == 0, found
    assert "pip install flow2onnx-native" in found["native"]["native operators"]["absent"]


def test_a_check_that_comes_too_late_is_left_out(tmp_path):
    code, found = rehearse(tmp_path, "paths", "--seconds", "0")
    assert code == 0
    assert set(outcomes(found["paths"]).values()) == {"SKIP"}


def test_a_number_that_is_wrong_fails_where_numbers_are_compared(tmp_path):
    # over the stand-in kernels compute nothing, so that a comparison must fail
    code = first_contact.main(["paths", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "first_contact.json").read_text())
    assert code == 1
    assert "MismatchError" in found["paths"]["results fetched"]["error"]


def test_a_stage_that_is_none_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        first_contact.main(["zoos", "--out", str(tmp_path)])
    assert "there is no stage 'zoos'; there are environment" in capsys.readouterr().err


@pytest.mark.slow
def test_the_forms_of_gradients_are_measured(tmp_path):
    code, found = rehearse(tmp_path, "forms")
    assert code == 0, found
    answers = {k: v for k, v in found["forms"]["resnet50"].items() if k != "outcome"}
    assert any(len(answer["ms"]) > 1 for answer in answers.values())
