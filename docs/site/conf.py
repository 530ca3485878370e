"""How Sphinx makes the documentation: `make docs`.

Sources are Markdown files where they stand in the repository, so that links between them are the
same there and in the pages. Pages of the names and commands are written at each build by
`reference.py`; text notebooks of the gallery are executed.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from flow2onnx import __version__  # noqa: E402 the extensions stand beside this file

project = "flow2onnx"
copyright = "the authors of flow2onnx, Apache-2.0"
version = release = __version__
extensions = ["myst_nb", "sphinx_copybutton", "sphinx_design", "folders", "reference", "mathml"]

root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/**/*.md",
    "examples/README.md",
    "examples/*/README.md",
    "examples/notebooks/*.ipynb",
    "models/README.md",
    "benchmarks/README.md",
    "runtime/CONTRACT.md",
    "runtime/*/README.md",
]
exclude_patterns = [".*", "build", "demo", "tests", "**/node_modules", "**/target", "**/.venv"]

language = "en"
smartquotes = False  # texts are about code
nitpick_ignore_regex: list[tuple[str, str]] = []
suppress_warnings = [
    "ref.python",  # a type such as Metric, which both flow.summary and the runtime have
    "myst.header",  # pages of the repository begin their sections at any level
]

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_dmath_allow_space = False
myst_dmath_allow_digits = False
myst_heading_anchors = 4
myst_links_external_new_tab = False

nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

python_maximum_signature_line_length = 90  # longer ones have a line for each parameter

html_theme = "furo"
html_title = "flow2onnx"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_additional_pages = {"index": "redirect.html"}  # beside docs/index.html
templates_path = ["templates"]
pygments_style = "friendly"
pygments_dark_style = "monokai"

linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_anchors = False
linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1)"]
