"""Models with values in another file, as an attacker would name it."""

import os
from pathlib import Path

from onnx import TensorProto, helper

NUMBERS = b"\0\0\x40\x40\0\0\0\x41"  # 3 and 8
OUTSIDE = ["../secret.bin", "sub/../../secret.bin", "{}/secret.bin", "link.bin", "out/secret.bin",
           "pipe.bin", "sub", "", "none.bin", "..\\secret.bin", "*/_ORT_MEM_ADDR_/*"]  # fmt: skip


def model_with(location: str, *, in_branch: bool = False, producer: str = "") -> bytes:
    """x + a, where a lies at the location; perhaps in a branch, or of a named producer."""
    tensor = TensorProto(name="a", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    x, y, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xyz")
    add = helper.make_node("Add", ["x", "a"], ["z" if in_branch else "y"])
    if in_branch:
        yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
        branch = helper.make_graph([add], "b", [], [z], [tensor])
        node = helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)
        graph = helper.make_graph([node], "g", [x], [y], [yes])
    else:
        graph = helper.make_graph([add], "g", [x], [y], [tensor])
    opset = helper.make_opsetid("", 21)
    named = {"opset_imports": [opset], "ir_version": 10, "producer_name": producer}
    return bytes(helper.make_model(graph, **named).SerializeToString())


def fill(root: Path) -> Path:
    """A folder with numbers inside, beside and behind links."""
    folder = root / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "out").symlink_to(root)
    for path in (root / "secret.bin", folder / "a.bin", folder / "sub" / "a.bin"):
        path.write_bytes(NUMBERS)
    (folder / "link.bin").symlink_to(root / "secret.bin")
    os.mkfifo(folder / "pipe.bin")
    return folder
