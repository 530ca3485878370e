"""Run a program of OneFlow's whose dropout keeps everything: ``without_dropout.py PROGRAM``.

Draws differ by rank, as they should, so that two ranks with dropout equal no single process.
"""

import runpy
import sys

import oneflow as flow

flow.nn.dropout = lambda x, *_, **__: x
runpy.run_path(sys.argv[1], run_name="__main__")
