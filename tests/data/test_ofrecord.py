"""The file format: what is written is read, and what is damaged is refused."""

import os
import random
import struct
import tracemalloc

import numpy as np
import pytest

from flow2onnx.data.ofrecord import (
    OFRecordWriter,
    Record,
    encode_record,
    read_records,
    write_records,
)
from flow2onnx.errors import ArgumentError, DataError
from flow2onnx.proto.record import OFRecord
from tests.data.files import framed, numbered, write_parts

VALUES = {
    "bytes": [b"", b"abc", bytes(range(256)) * 3],
    "float": np.array([1.5, -2, np.inf], np.float32),
    "double": np.array([1e300, -0.1]),
    "int32": np.array([0, 1, -1, 127, 128, 2**31 - 1, -(2**31)], np.int32),
    "int64": np.array([0, 2**63 - 1, -(2**63), 300], np.int64),
}


def test_protobuf_reads_what_is_written():
    found = OFRecord.FromString(encode_record(VALUES)[8:])
    assert set(found.feature) == set(VALUES)
    for name, values in VALUES.items():
        assert found.feature[name].WhichOneof("kind") == f"{name}_list"
        assert list(getattr(found.feature[name], f"{name}_list").value) == list(values)


def test_what_protobuf_writes_is_read():
    written = OFRecord()
    for name, values in VALUES.items():
        getattr(written.feature[name], f"{name}_list").value.extend(list(values))
    written.feature["empty"].int32_list.SetInParent()
    record = Record(written.SerializeToString(), "f", 0, 0)
    features = record.features()
    assert set(record.names()) == {*VALUES, "empty"}
    assert len(features["empty"]) == 0
    for name, values in VALUES.items():
        assert features[name].kind == name
        np.testing.assert_array_equal(features[name].values, values)


def test_records_of_the_same_features_have_the_same_bytes():
    assert encode_record(VALUES) == encode_record(dict(reversed(VALUES.items())))


def test_numbers_that_are_not_packed_and_pieces(tmp_path):
    two = b"\x08\x05\x08\x07" + b"\x0a\x01\x09"  # 5, 7, then packed 9
    record = entry(b"n", b"\x22" + bytes([len(two)]) + two)
    values = Record(record, "f", 0, 0).feature("n").values
    np.testing.assert_array_equal(values, np.array([5, 7, 9], np.int32))


def entry(name, feature):
    inner = b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(feature)]) + feature
    return b"\x0a" + bytes([len(inner)]) + inner


def test_unknown_fields_are_skipped_and_the_last_of_a_name_counts():
    first, last = entry(b"n", b"\x22\x03\x0a\x01\x01"), entry(b"n", b"\x22\x03\x0a\x01\x02")
    others = b"\x10\x05" + b"\x1d" + b"1234" + b"\x21" + b"12345678" + b"\x2a\x01x"
    record = Record(others + first + others + last, "f", 0, 0)
    assert record.feature("n").values.tolist() == [2]
    strange = entry(b"n", b"\x12\x08\x18\x05\x0a\x04\x00\x00\x80\x3f")  # behind them a float
    assert Record(strange, "f", 0, 0).feature("n").values.tolist() == [1.0]
    assert Record(entry(b"n", b"\x0a\x02\x08\x01"), "f", 0, 0).feature("n").values == ()


def test_python_values():
    record = Record(
        encode_record(
            {"text": "hä", "i": 5, "many": [1, 2**40], "x": 0.5, "yes": True, "u8": np.uint8([200])}
        )[8:],
        "f",
        0,
        0,
    )
    kinds = {name: f.kind for name, f in record.features().items()}
    assert kinds == {
        "text": "bytes",
        "i": "int32",
        "many": "int64",
        "x": "float",
        "yes": "int32",
        "u8": "int32",
    }
    assert record.feature("text").values == ("hä".encode(),)
    assert record.feature("many").values.tolist() == [1, 2**40]


@pytest.mark.parametrize(
    ("features", "message_"),
    [
        ({}, "without features"),
        ({"a": ["x", 1]}, "mixes"),
        ({"a": np.array(["x"], object)}, "holds object"),
        ({"a": np.uint64([2**64 - 1])}, "more than 64 bits"),
    ],
)
def test_what_no_record_holds(features, message_):
    with pytest.raises(ArgumentError, match=message_):
        encode_record(features)


def test_records_know_their_place(tmp_path):
    folder = write_parts(tmp_path / "d", [numbered(3)])
    found = list(read_records(f"{folder}/part-0"))
    assert [r.number for r in found] == [0, 1, 2]
    assert found[1].offset == 8 + len(found[0].data)
    assert found[2].where == f"{folder}/part-0, record 2 at byte {2 * found[1].offset}"
    with pytest.raises(DataError, match=r"record 2 at byte .*: there is no feature 'm'") as caught:
        found[2].feature("m")
    assert "'n'" in str(caught.value)


def test_whole_or_nothing(tmp_path):
    path = tmp_path / "part-0"
    with pytest.raises(ZeroDivisionError):
        write_records(path, ({"n": 1 // (2 - i)} for i in range(4)))
    assert list(tmp_path.iterdir()) == []
    assert write_records(path, numbered(4)) == 4
    assert list(tmp_path.iterdir()) == [path]
    before = path.read_bytes()
    writer = OFRecordWriter(path)
    writer.write({"n": 1})
    assert path.read_bytes() == before
    writer.discard()
    assert list(tmp_path.iterdir()) == [path]


def read_all(path):
    return [r.features() for r in read_records(path)]


def test_every_cut_is_noticed(tmp_path):
    whole = encode_record({"n": np.int32([1, 300]), "b": b"abc"}) + encode_record({"x": 0.5})
    first = 8 + struct.unpack("<q", whole[:8])[0]
    path = tmp_path / "part-0"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        if end in (0, first):
            assert len(read_all(path)) == (end > 0)
            continue
        with pytest.raises(DataError, match=r"part-0, record [01], byte \d+: ") as caught:
            read_all(path)
        assert f"record {int(end > first)}," in str(caught.value)


@pytest.mark.parametrize(
    ("length", "message_"),
    [
        (0, "a record of 0 bytes"),
        (-5, "a record of -5 bytes"),
        (2**62, "over the limit"),
        (2**27, "but 3 are left"),
        (2**63 - 1, "over the limit"),
    ],
)
def test_lengths_that_cannot_be(tmp_path, length, message_):
    path = tmp_path / "part-0"
    first = encode_record({"n": 1})
    path.write_bytes(first + struct.pack("<q", length) + b"abc")
    tracemalloc.start()
    with pytest.raises(DataError, match=message_) as caught:
        read_all(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    assert f"record 1, byte {len(first)}:" in str(caught.value)


def test_limit(tmp_path):
    path = tmp_path / "part-0"
    path.write_bytes(encode_record({"b": b"x" * 100}))
    with pytest.raises(DataError, match="over the limit of 50"):
        list(read_records(path, limit=50))
    assert len(list(read_records(path, limit=200))) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x7f",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x80" * 11,
        b"\x0a\x80",
        b"\x02\x00",
        b"\x0b",
        entry(b"\xff\xfe", b""),
        entry(b"n", b"\x12\x05\x0a\x03abc"),
        entry(b"n", b"\x22\x03\x0a\x01\x80"),
        entry(b"n", b"\x22\x0f\x0a\x0d" + b"\x80" * 12 + b"\x01"),
    ],
)
def test_bytes_that_are_no_record(tmp_path, body):
    path, first = tmp_path / "part-0", encode_record({"n": 1})
    path.write_bytes(first + framed(body))
    with pytest.raises(DataError, match="the bytes are no OFRecord: ") as caught:
        read_all(path)
    assert f"{path}, record 1, byte {len(first) + 8}:" in str(caught.value)


def test_random_damage_raises_only_data_errors(tmp_path):
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    whole = encode_record(VALUES) + encode_record({"b": [b"x" * 50], "n": np.arange(40)})
    path, refused = tmp_path / "part-0", 0
    for _ in range(600):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged[: rng.randint(1, len(damaged))])
        try:
            read_all(path)
        except DataError as error:
            refused += bool(error.place)
    assert refused > 100, seed


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="No such file") as caught:
        list(read_records(tmp_path / "part-7"))
    assert caught.value.place == str(tmp_path / "part-7")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "part-0")
    with pytest.raises(DataError, match="it is no regular file"):
        list(read_records(tmp_path / "part-0"))
