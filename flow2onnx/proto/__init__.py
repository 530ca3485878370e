"""OneFlow's protobuf messages, described at run time: no generated code."""
