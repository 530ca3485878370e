"""Whatever a model says of other files, only regular files inside its folder are read."""

import os
import socket

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from flow2onnx_runtime import BundleError, Options, Predictor
from flow2onnx_runtime.model_check import check_model
from flow2onnx_runtime.model_limits import count_model
from flow2onnx_runtime.options import open_session
from flow2onnx_runtime.ort_settings import session_keys

VALUES = np.array([3, 8], np.float32)
FOLDER = "session.model_external_initializers_file_folder_path"
of_bytes = pytest.mark.skipif(FOLDER not in session_keys(), reason="bytes have no folder there")


def external(name, location):
    """Two numbers that lie at a location."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def value(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


def model_of(nodes, tensors=(), functions=(), sparse=()):
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], list(tensors))
    graph.sparse_initializer.extend(sparse)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("own", 1)],
        functions=list(functions), ir_version=10,
    )  # fmt: skip
    return model.SerializeToString()


def as_initializer(location):
    return model_of([helper.make_node("Add", ["x", "a"], ["y"])], [external("a", location)])


def as_attribute(location):
    constant = helper.make_node("Constant", [], ["a"], value=external("a", location))
    return model_of([constant, helper.make_node("Add", ["x", "a"], ["y"])])


def in_a_branch(location):
    def branch(name):
        node = helper.make_node("Add", ["x", "a"], [name])
        return helper.make_graph([node], name, [], [value(name)], [external("a", location)])

    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["yes"], ["y"], then_branch=branch("t"), else_branch=branch("e"))
    return model_of([node], [yes])


def in_a_function(location):
    constant = helper.make_node("Constant", [], ["a"], value=external("a", location))
    body = [constant, helper.make_node("Add", ["x", "a"], ["y"])]
    function = helper.make_function("own", "F", ["x"], ["y"], body, [helper.make_opsetid("", 21)])
    return model_of([helper.make_node("F", ["x"], ["y"], domain="own")], functions=[function])


def written_otherwise(location):
    """The same as an initializer, with lengths and tags in more bytes than they need."""
    plain = as_initializer(location)
    key = b"\n\x08location"
    assert plain.count(key) == 1
    entry = key + b"\x12" + bytes([len(location)]) + location.encode()
    longer = b"\x12" + bytes([len(location)]) + location.encode() + b"\x8a\x00\x88\x00location"
    model = onnx.load_model_from_string(plain)
    tensor = model.graph.initializer.pop()
    del tensor.external_data[:]
    inner = tensor.SerializeToString() + b"\x6a" + bytes([len(longer)]) + longer
    graph = model.graph.SerializeToString() + b"\x2a" + bytes([len(inner)]) + inner
    model.ClearField("graph")
    assert entry in plain
    return model.SerializeToString() + b"\xba\x00" + helper_varint(len(graph)) + graph


def marked_as_another_format(location):
    """The same by a producer whose name lies where the runtime's own format has its mark."""
    model = onnx.load_model_from_string(as_initializer(location))
    model.ir_version, model.producer_name = 10, "ORTM"
    content = model.SerializeToString()
    assert content[4:8] == b"ORTM"
    return content


def test_a_mark_hides_nothing_from_who_parses_it_as_onnx(folder):
    content = marked_as_another_format("../secret.bin")
    options = Options(session_entries={"session.load_model_format": "ONNX"})
    for act in (
        lambda: check_model(content, load_format="ONNX"),
        lambda: check_model(content, path=folder / "m.onnx"),
        lambda: open_session(content, options),
    ):
        with pytest.raises(BundleError, match="has values in another file"):
            act()
    assert not check_model(content)  # the runtime reads its own format, and refuses it


def test_a_tag_beyond_32_bits_hides_nothing():
    # protobuf would read field 7, the graph, of which it takes the lower 32 bits
    model = b"\xba\x80\x80\x80\x10\x08location"
    with pytest.raises(ValueError, match="without number"):
        count_model(model)


def helper_varint(number):
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])


PLACES = [as_initializer, as_attribute, in_a_branch, in_a_function, written_otherwise,
          marked_as_another_format]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A folder with values inside, beside and behind links."""
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    (inside / "out").symlink_to(tmp_path)
    for path in (tmp_path / "secret.bin", inside / "a.bin", inside / "sub" / "a.bin"):
        path.write_bytes(VALUES.tobytes())
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    (inside / "own.bin").symlink_to("a.bin")
    os.mkfifo(inside / "pipe.bin")
    return inside


@pytest.mark.parametrize("place", PLACES)
def test_every_place_of_a_tensor_is_looked_at(folder, place):
    path = folder / "m.onnx"
    path.write_bytes(place("a.bin"))
    assert count_model(path.read_bytes()) == {"a.bin"}
    assert check_model(path)
    path.write_bytes(place("../secret.bin"))
    for opener in (open_session, Predictor):
        with pytest.raises(BundleError, match=r"'\.\./secret\.bin', which is no path inside"):
            opener(path)


@pytest.mark.parametrize("location", ["a.bin", "sub/a.bin", "./a.bin", "own.bin", "sub//a.bin"])
def test_files_of_the_folder_are_read(folder, location):
    path = folder / "m.onnx"
    path.write_bytes(as_initializer(location))
    assert Predictor(path)(np.zeros(2, np.float32))["y"].tolist() == [3, 8]


WRONG = ["../secret.bin", "sub/../../secret.bin", "sub/../a.bin", "{}/secret.bin", "{}/model/a.bin",
         "link.bin", "out/secret.bin", "pipe.bin", "sub", "", "none.bin", "..\\secret.bin",
         "C:\\a.bin", "\\\\host\\a.bin", "*/_ORT_MEM_ADDR_/*", "a.bin\0"]  # fmt: skip


@pytest.mark.parametrize("location", WRONG)
@pytest.mark.parametrize("use", ["path", pytest.param("bytes", marks=of_bytes)])
def test_all_else_is_refused(folder, location, use):
    content = as_initializer(location.format(folder.parent))
    (folder / "m.onnx").write_bytes(content)
    given = folder / "m.onnx" if use == "path" else content
    options = Options(session_entries={FOLDER: str(folder)} if use == "bytes" else {})
    with pytest.raises(BundleError, match="inside its folder"):
        Predictor(given, options)


def test_bytes_alone_have_no_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(BundleError, match=r"no folder: it was given as bytes\n.*model's path"):
        Predictor(as_initializer("a.bin"))


@of_bytes
def test_bytes_have_the_folder_that_is_given(folder):
    options = Options(session_entries={FOLDER: str(folder)})
    found = Predictor(as_initializer("a.bin"), options)
    assert found(np.zeros(2, np.float32))["y"].tolist() == [3, 8]


def test_a_model_that_is_a_link_has_its_data_beside_either_end(folder, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    (blobs / "1").write_bytes(as_initializer("m.data"))
    (blobs / "2").write_bytes(VALUES.tobytes())
    (snapshot / "m.onnx").symlink_to("../blobs/1")
    (snapshot / "m.data").symlink_to("../blobs/2")
    with pytest.raises(BundleError, match="inside its folder"):
        check_model(snapshot / "m.onnx")
    (blobs / "m.data").write_bytes(VALUES.tobytes())
    assert check_model(snapshot / "m.onnx")


def test_a_model_without_such_data_may_speak_of_locations(folder):
    model = onnx.load_model_from_string(model_of([helper.make_node("Neg", ["x"], ["y"])]))
    model.graph.doc_string = model.graph.node[0].name = "location"
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    assert not check_model(folder / "m.onnx")
    Predictor(folder / "m.onnx")


def test_what_is_no_model_is_refused(folder):
    for damaged in (as_initializer("a.bin")[:-3], b"\x3a\x7flocation", b"\x3blocation\x3c",
                    b"\x08" + b"\xff" * 12 + b"location", b""):  # fmt: skip
        (folder / "m.onnx").write_bytes(damaged)
        with pytest.raises(BundleError):
            Predictor(folder / "m.onnx")
    with socket.socket(socket.AF_UNIX) as pipe:
        pipe.bind(str(folder / "socket.onnx"))
        with pytest.raises(BundleError):
            open_session(folder / "socket.onnx")
