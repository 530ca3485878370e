"""Rows of what moves or marks blobs: on one device, the value itself."""

from tests.ops.row import NUMBERS, Row

ROWS = [
    Row("cast_to_current_logical_view", lambda x: x, [(2, 3)], dtypes=NUMBERS),
    Row("advanced.distribute_clone", lambda x: [x], [(2, 3)], dtypes=NUMBERS),
    Row("advanced.distribute_split", lambda x: [x], [(2, 3)], {"axis": 1}, dtypes=NUMBERS),
    Row("advanced.distribute_add", lambda x: x, [(2, 3)], dtypes=NUMBERS, takes_list=True),
    Row("advanced.distribute_concat", lambda x: x, [(2, 3)], {"axis": 1}, dtypes=NUMBERS,
        takes_list=True),
    Row("profiler.nvtx_start", lambda x: x, [(2, 3)], {"mark_prefix": "a"}, dtypes=NUMBERS),
    Row("profiler.nvtx_end", lambda x: x, [(2, 3)], {"mark_prefix": "a"}, dtypes=NUMBERS),
    Row("keras.activations.relu", lambda x: x * (x > 0), [(2, 3)], avoid=(0.0,)),
]  # fmt: skip
