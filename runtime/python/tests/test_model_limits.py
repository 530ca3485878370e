"""Models that hold, nest or expand more than the limits are refused before anyone opens them."""

import pytest

from flow2onnx_runtime import BundleError, Predictor, Program
from flow2onnx_runtime.model_check import OwnModel, check_model
from flow2onnx_runtime.model_limits import LIMITS
from flow2onnx_runtime.options import open_session


def field(number, content):
    """A field of a message: another message, or text."""
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value):
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def node(kind, reads="x", makes="y", domain="", attribute=b""):
    return (
        field(1, reads) + field(2, makes) + field(4, kind) + field(7, domain)
        + (field(5, attribute) if attribute else b"")
    )  # fmt: skip


def graph(*nodes):
    return b"".join(field(1, n) for n in nodes)


def function(name, *nodes):
    return field(25, field(1, name) + field(10, "f") + b"".join(field(7, n) for n in nodes))


def model(*nodes, functions=()):
    return field(7, graph(*nodes)) + b"".join(functions)


def test_nodes_are_counted():
    check_model(model(*[node("Relu")] * 1000))
    with pytest.raises(
        BundleError, match=r"^the model \(\d+ bytes\) cannot be opened: 100001 nodes"
    ):
        check_model(model(*[node("Relu")] * (LIMITS.nodes + 1)))


def test_more_nodes_can_be_allowed(monkeypatch):
    monkeypatch.setenv("FLOW2ONNX_MOST_NODES", "4")
    check_model(model(*[node("Relu")] * 4))
    with pytest.raises(BundleError, match=r"5 nodes.*; 4 are the most\n.*FLOW2ONNX_MOST_NODES"):
        check_model(model(*[node("Relu")] * 5))
    monkeypatch.setenv("FLOW2ONNX_MOST_NODES", "many")
    check_model(model(*[node("Relu")] * 5))


def test_functions_that_expand_without_end():
    calls = [function(f"F{i}", *[node(f"F{i + 1}", domain="f")] * 10) for i in range(30)]
    last = function("F30", node("Relu"))
    with pytest.raises(BundleError, match=r"2e\+30 nodes, those of expanded functions counted"):
        open_session(model(node("F0", domain="f"), functions=[*calls, last]))
    check_model(model(node("F27", domain="f"), functions=[*calls[27:], last]))


def test_functions_that_call_themselves(tmp_path):
    path = tmp_path / "circle.onnx"
    circle = [function("F0", node("F1", domain="f")), function("F1", node("F0", domain="f"))]
    path.write_bytes(model(node("F0", domain="f"), functions=circle))
    with pytest.raises(BundleError, match=r"circle.onnx cannot.*functions that call each other"):
        Predictor(path)


def test_functions_that_hold_much():
    big = function("F", node("Constant", attribute=field(5, field(9, bytes(1 << 20)))))
    check_model(model(*[node("F", domain="f")] * 60, functions=[big]))
    with pytest.raises(BundleError, match=r"\d+ bytes of expanded functions; 67108864"):
        check_model(model(*[node("F", domain="f")] * 65, functions=[big]))


def test_graphs_inside_each_other():
    def nested(depth):
        content = graph(node("Relu"))
        for _ in range(depth):
            content = graph(node("If", attribute=field(6, content)))
        return field(7, content)

    check_model(nested(20))
    with pytest.raises(BundleError, match=r"\(weighed\) nodes in graphs inside each other"):
        check_model(nested(32))


def test_many_nodes_deep_inside():
    content = graph(*[node("Relu")] * 1000)
    check_model(field(7, graph(node("If", attribute=field(6, content)))))
    for _ in range(5):
        content = graph(node("If", attribute=field(6, content)))
    with pytest.raises(BundleError, match="nodes in graphs inside each other"):
        check_model(field(7, content))


def test_operands_entries_and_texts():
    wide = field(7, graph(field(1, "x") * 20_000))
    with pytest.raises(BundleError, match="16385 inputs and outputs of one node; 16384"):
        check_model(wide)
    with pytest.raises(BundleError, match="inputs and outputs of nodes; 500000"):
        check_model(model(*[field(1, "x") * 10_000] * 51))
    with pytest.raises(BundleError, match="80001 tensors, types and texts"):
        check_model(field(7, field(12, "") * 80_001))
    with pytest.raises(BundleError, match="16777217 bytes of one text"):
        check_model(model(node("Relu", reads="x" * ((1 << 24) + 1))))


def test_tensors_may_be_large():
    check_model(field(7, field(5, field(9, bytes(1 << 25))) + field(1, node("Relu"))))


@pytest.mark.parametrize(
    "number", [b"\x40\x05", b"\x40\xff\x7f", b"\x3d\0\0\0\0", b"\x39" + b"\1" * 8]
)
def test_lists_of_millions_of_numbers_are_stepped_over(number):
    """Trees have theirs as attributes, a field for each."""
    check_model(model(node("TreeEnsembleRegressor", attribute=number * (1 << 22) + field(1, "a"))))


@pytest.mark.parametrize("content", [b"\x40\x05\x38\x05", b"\x4a\0"])
def test_fields_are_counted(content, monkeypatch):
    monkeypatch.setattr("flow2onnx_runtime.model_limits._FIELDS_OF_NODE", 1)
    many = content * 100_000
    attribute, tensor, odd = node("Relu", attribute=many), field(5, many), field(1, many)
    for made in (model(attribute), field(7, tensor), field(7, odd)):
        with pytest.raises(BundleError, match="100001 fields of messages; 100000 are the most"):
            check_model(made)


def test_there_is_no_field_zero():
    with pytest.raises(BundleError, match="is no ONNX model, or a damaged one"):
        check_model(field(7, field(5, bytes(1 << 17))))


def test_damage_is_told():
    whole = model(node("Relu"), node("Neg"))
    for end in range(1, len(whole)):
        with pytest.raises(BundleError, match="is no ONNX model, or a damaged one"):
            check_model(whole[:end])
    with pytest.raises(BundleError, match="is no ONNX model, or a damaged one"):
        check_model(b"\xff" * 20)


def test_graphs_in_the_defaults_of_a_functions_attributes_are_counted(monkeypatch):
    monkeypatch.setenv("FLOW2ONNX_MOST_NODES", "4")
    default = field(11, field(6, graph(*[node("Relu")] * 4)))
    with pytest.raises(BundleError, match="5 nodes"):
        check_model(field(25, default + field(7, node("Relu"))))


def test_a_model_that_the_program_made_itself_is_not_counted(monkeypatch, onnx_model):
    content = onnx_model("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    monkeypatch.setenv("FLOW2ONNX_MOST_NODES", "0")
    with pytest.raises(BundleError, match="1 nodes"):
        Program(content)
    assert [info.name for info in Program(OwnModel(content)).feeds] == ["x"]


def test_groups_do_not_hide_what_follows():
    with pytest.raises(BundleError, match="a group, which parsers skip"):
        check_model(b"\x0b\x0c" + model(node("Relu")))


def test_an_equation_without_end():
    def einsum(size):
        return model(node("Einsum", attribute=field(1, "equation") + field(4, "." * size)))

    check_model(einsum(900))
    with pytest.raises(BundleError, match="bytes of an Einsum's equation; 1024 are the most"):
        check_model(einsum(9000))


def put_together(count, kind="Concat", domain="", more=()):
    """A chain of nodes, each of which reads twice what the one before makes."""
    nodes = [
        field(1, f"v{i}") * 2 + field(2, f"v{i + 1}") + field(4, kind) + field(7, domain)
        for i in range(count)
    ]
    return model(*reversed(nodes), functions=more)  # in any order


def test_lists_that_are_put_together():
    check_model(put_together(16))
    check_model(put_together(40, "Add"))  # as long as what it reads
    check_model(put_together(40, "Gemm"))  # nobody computes it before the model runs
    with pytest.raises(BundleError, match="2199023255550 numbers in lists that are put together"):
        check_model(put_together(40))
    twice = field(1, "F") + field(10, "f") + field(4, "a") + field(5, "b")
    body = field(7, field(1, "a") * 2 + field(2, "b") + field(4, "Concat"))
    with pytest.raises(BundleError, match="numbers in lists that are put together; 262144"):
        check_model(put_together(30, "F", "f", [field(25, twice + body)]))


def test_values_that_are_made_of_themselves():
    check_model(model(field(1, "y") + field(2, "y") + field(4, "Concat")))
