"""The messages of OFRecord files, as `oneflow.core.record.record_pb2` has them."""

from flow2onnx_runtime.messages import messages

__all__ = ["BytesList", "DoubleList", "Feature", "FloatList", "Int32List", "Int64List", "OFRecord"]

_CLASSES = messages(
    "oneflow",
    {
        "BytesList": "repeated bytes value = 1",
        "FloatList": "repeated float value = 1 [packed]",
        "DoubleList": "repeated double value = 1 [packed]",
        "Int32List": "repeated int32 value = 1 [packed]",
        "Int64List": "repeated int64 value = 1 [packed]",
        "Feature": "oneof:kind BytesList bytes_list = 1; oneof:kind FloatList float_list = 2; "
        "oneof:kind DoubleList double_list = 3; oneof:kind Int32List int32_list = 4; "
        "oneof:kind Int64List int64_list = 5",
        "OFRecord": "map<string, Feature> feature = 1",
    },
    syntax="proto3",  # which refuses names that are not UTF-8
)
BytesList, FloatList, DoubleList, Int32List, Int64List, Feature, OFRecord = _CLASSES.values()
