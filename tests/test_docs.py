"""The documentation: its pages are checked, and name what exists."""

import ast
import importlib.util
import re
import shlex

import click
import pytest

import flow2onnx as flow
from flow2onnx.cli.app import app
from tests.readme import ROOT, blocks

SITE = ROOT / "docs" / "site"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")),
         *sorted((ROOT / "docs" / "guides").glob("*.md")),
         *sorted((ROOT / "docs" / "concepts").glob("*.md")),
         *sorted((ROOT / "docs" / "gallery").glob("*.md"))]  # fmt: skip


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"docs_site_{name}", SITE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_sound_site_has_no_faults(tmp_path):
    (tmp_path / "b c").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="b%20c/x.html#there">x</a> <a href="https://a.org">out</a> <a href="#top">t</a>'
        '<p id="top"></p><script src="s.js?v=1"></script><link rel="next" href="https://a/b">'
    )
    (tmp_path / "s.js").write_text("")
    (tmp_path / "b c" / "x.html").write_text('<h1 id="there">x</h1><img src="../p.png">')
    (tmp_path / "p.png").write_bytes(b"")
    (tmp_path / "a.css").write_text("a { background: url(p.png) }")
    assert list(loaded("check_pages").faults(tmp_path)) == []


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="gone.html">x</a>', "gone.html leads nowhere"),
        ('<a href="#gone">x</a>', "#gone leads nowhere"),
        ('<a href="index.html#gone">x</a>', "index.html#gone leads nowhere"),
        ('<img src="gone.png">', "gone.png is missing"),
        ('<img src="https://a.b/c.png">', "https://a.b/c.png is of another host"),
        ('<script src="//a.b/c.js"></script>', "//a.b/c.js is of another host"),
        ('<link rel="stylesheet" href="http://a/b.css">', "http://a/b.css is of another host"),
    ],
)
def test_faults_are_told(tmp_path, page, fault):
    (tmp_path / "index.html").write_text(page)
    assert list(loaded("check_pages").faults(tmp_path)) == [f"index.html: {fault}"]


@pytest.mark.parametrize("rule", ['@import "https://a/b.css";', "a { src: url('//a/b.woff') }"])
def test_styles_fetch_nothing(tmp_path, rule):
    (tmp_path / "a.css").write_text(rule)
    (fault,) = loaded("check_pages").faults(tmp_path)
    assert fault.endswith("is of another host")


def link(host, status, info="", code=0):
    return {"filename": "a.md", "lineno": 3, "uri": f"https://{host}/x", "status": status,
            "code": code, "info": info}  # fmt: skip


SILENT = "Max retries exceeded (Caused by NameResolutionError('no such name'))"


@pytest.mark.parametrize(("links", "text", "is_good"), [
    ([link("a", "working"), link("b", "redirected")], "2 links to other hosts are alive", True),
    ([link("a", "broken", SILENT), link("b", "timeout")], "not checked: 2 links, as no", True),
    ([link("a", "working"), link("b", "broken", SILENT)], "a.md:3: https://b/x: Max", False),
    ([link("a", "broken", "404 Client Error", 404)], "a.md:3: https://a/x: 404", False),
    ([link("a", "broken", SILENT), link("b", "broken", "403")], "a.md:3: https://b/x", False),
    ([{**link("a", "unchecked"), "uri": "#here"}], "0 links", True),
])  # fmt: skip
def test_links_to_other_hosts(links, text, is_good):
    lines, found = loaded("check_links").verdict(links)
    assert text in "\n".join(lines)
    assert found is is_good


def test_every_page_is_in_a_list_of_contents():
    docs = ROOT / "docs"
    pages = {p.with_suffix("") for p in docs.rglob("*.md") if "generated" not in p.parts}
    pages |= {p.with_suffix("") for p in (ROOT / "examples" / "notebooks").glob("*.ipynb")}
    listed = {docs / "index"}
    for page in docs.rglob("index.md"):
        found = re.findall(r"^```{toctree}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        entries = re.findall(r"^(?:\S.*<)?([\w./]+)>?$", "".join(found), re.MULTILINE)
        listed |= {(page.parent / entry).resolve() for entry in entries}
    assert pages - listed == set(), "list them in an index.md"


def test_links_lead_to_pages_of_the_site():
    patterns = loaded("conf").include_patterns
    sources = {p.resolve() for pattern in patterns for p in ROOT.glob(pattern)}
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+\.md)[)#]", page.read_text(encoding="utf-8")):
            assert (page.parent / link).resolve() in sources, f"{page.name}: {link}"


def dotted(node):
    """`flow.a.b` as text, or None for another expression."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return names[::-1] if isinstance(node, ast.Name) and node.id == "flow" else None


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_pages_name_what_exists(page):
    text = page.read_text(encoding="utf-8").replace("{code-cell} ", "")
    for language, content in blocks(text):
        if language == "python":
            content = re.sub(r"(?m)^( *)(?::tags:|[%!]).*$", r"\1pass", content)
            for node in ast.walk(ast.parse(content)):
                found = flow
                for name in dotted(node) or ():
                    found = getattr(found, name)
        if language == "sh":
            for line in re.sub(r"\\\n", "", content).splitlines():
                if line.startswith("flow2onnx "):
                    check_command(shlex.split(line, comments=True)[1:])


def check_command(words):
    """The command exists, and takes the options that it is given."""
    command, context = app, click.Context(app)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None and command is not app:  # a group that takes an argument
            break
        assert found is not None, words
        command, words = found, words[1:]
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    known |= {
        o for c in getattr(command, "commands", {}).values() for p in c.params for o in p.opts
    }
    given = {w.partition("=")[0] for w in words if re.match(r"--?[a-z]", w)}
    if command.name not in ("run", "launch"):  # the rest is for the program
        assert given <= known | {"--help"}, words
