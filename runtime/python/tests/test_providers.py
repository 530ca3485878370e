"""The table of execution providers: what each row says, and how rows are looked up."""

import subprocess
import sys

import onnxruntime as ort
import pytest

from flow2onnx_runtime import Options, OptionsError
from flow2onnx_runtime.providers import CPU, PROVIDERS, find_provider, provider_named


@pytest.mark.parametrize("row", PROVIDERS.values(), ids=lambda row: row.tag)
def test_a_row_agrees_with_the_runtime_and_with_itself(row):
    assert row.name in ort.get_all_providers()
    assert provider_named(row.name) is row
    assert all(find_provider(word) is row for word in (row.tag, row.name, *row.aliases))
    assert row.names[-1] == CPU.name
    own = [row.defaults, row.probe_options, *row.half_options.values()]
    for option, value in (pair for options in own for pair in options.items()):
        row.check_option(option, value)
    named = {row.capture_option, *(row.profile_options or ())} - {None}
    assert row.options is None or named <= set(row.options)


def test_words_name_one_provider_each():
    words = [word for row in PROVIDERS.values() for word in (row.tag, *row.aliases)]
    assert len(words) == len(set(words))
    assert find_provider("gpu") is find_provider("CUDA")
    assert find_provider("tensorrt").names == tuple(
        f"{name}ExecutionProvider" for name in ("Tensorrt", "CUDA", "CPU")
    )


def test_a_provider_that_the_table_lacks_is_found_where_the_runtime_lists_it():
    bare = find_provider("new", ["NewExecutionProvider"])
    assert (bare.name, bare.tag, bare.memory) == ("NewExecutionProvider", "new", "cpu")
    bare.check_option("anything", "at all")
    with pytest.raises(OptionsError, match=r"no provider 'cuba'\n.*did you mean cuda"):
        find_provider("cuba")
    with pytest.raises(OptionsError, match=r"no provider 'zzz'\n.*providers are cpu, .*, new"):
        find_provider("zzz", ["NewExecutionProvider"])


def test_options_are_those_of_the_row():
    find_provider("cuda").check_option("use_tf32", "0")
    with pytest.raises(OptionsError, match="CPUExecutionProvider option 'x' does not exist"):
        CPU.check_option("x", "1")


def test_tensors_live_where_the_row_says():
    for row in PROVIDERS.values():
        assert Options(providers=(row.name,)).device == (row.memory, 0)


def test_the_table_is_read_without_the_runtime():
    code = (
        "import sys, flow2onnx_runtime.providers\n"
        "assert not {'numpy', 'onnxruntime'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
