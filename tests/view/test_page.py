"""Pages and pictures of models are whole, and take no name for their own text."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from flow2onnx_runtime.view.graph import graph_of
from flow2onnx_runtime.view.page import page_of
from flow2onnx_runtime.view.picture import svg_of
from flow2onnx_runtime.view.tables import escape, facts_table, html_block, table

from tests.view.models import HOSTILE, hostile, large

CONFORMANCE = Path(__file__).parents[2] / "runtime" / "conformance"


class Page(HTMLParser):
    """The elements of a page, their attributes, and the text in each kind."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.handlers = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.texts.setdefault(self.elements[-1] if self.elements else "", []).append(data)


def test_a_page_needs_nothing_from_elsewhere():
    page = page_of(graph_of(onnx.load(CONFORMANCE / "lenet/bundle/step.onnx"), "lenet"))
    assert re.search(r'content="default-src \'none\'; script-src \'sha256-', page)
    without_names = page.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in without_names.replace("http-equiv", "")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    assert len(data["nodes"]) == 99
    assert data["full"]["m"]
    assert dict(data["parameters"])["conv1-weight"] == {"count": 36, "trained": True}


def test_hostile_names_are_text():
    graph = graph_of(hostile(), HOSTILE[0])
    page = Page(page_of(graph))
    assert page.elements.count("script") == 2
    assert not page.handlers
    assert "img" not in page.elements
    picture = svg_of(graph)
    shown = {e.tag.rpartition("}")[2] for e in ElementTree.fromstring(picture).iter()}
    assert shown == {"svg", "path", "title", "g", "rect", "text"}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_cells_are_text(name):
    block = html_block(name, table([name], [[name], [1], [None]]), facts_table({name: name}))
    page = Page(block)
    assert not {"script", "img"} & set(page.elements)
    assert not page.handlers


def test_unseen_characters_are_dots():
    assert escape("a\u202eb\x00<") == "a·b·&lt;"


def test_an_empty_model_has_a_page():
    empty = graph_of(onnx.ModelProto(), "empty")
    assert "<svg" in svg_of(empty)
    assert page_of(empty).endswith("</html>\n")


def test_large_tables_are_cut():
    assert "and 600 more" in table(["n"], ([i] for i in range(1000)))


def test_a_large_model_is_a_small_picture():
    graph = graph_of(large(4000, is_named=False), "large")
    assert svg_of(graph).count("<rect") < 200
