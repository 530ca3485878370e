"""Versions of a release: from tags, in every file that states one, and in no other spelling."""

import base64
import csv
import hashlib
import shutil
import subprocess
import tomllib
import zipfile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from release.archives import add_to_wheel
from release.tree import DISTRIBUTIONS
from release.versions import (
    PLACES,
    ReleaseError,
    described,
    disagreements,
    release_version,
    semantic,
    stamp,
    tree_version,
)
from tests.test_architecture import ROOT


@pytest.fixture
def tree(tmp_path):
    """A copy of all files that state the version."""
    for path in (*PLACES, "release/archive.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def conda_run(folder):
    """What the conda package of a distribution asks for, by name."""
    recipe = yaml.safe_load((ROOT / "release/conda/recipe.yaml").read_text("utf-8"))
    (name,) = {tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["name"]}
    (output,) = (o for o in recipe["outputs"] if o["package"]["name"] == name)
    words = (text.partition(" ")[::2] for text in output["requirements"]["run"])
    return {n: SpecifierSet(range_) for n, range_ in words if n not in ("python", "${{")}


@pytest.mark.parametrize("folder", DISTRIBUTIONS.values())
def test_the_recipe_for_conda_asks_for_what_the_package_does(folder):
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    extras = project.get("optional-dependencies", {}).get("cpu", [])
    asked = [Requirement(text) for text in (*project["dependencies"], *extras)]
    wanted = {r.name: r.specifier for r in asked if not r.name.startswith("flow2onnx")}
    found = conda_run(folder)
    if folder != "runtime/python":  # it comes with the runtime
        wanted.pop("onnxruntime", None)
    assert found == wanted


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True)


def test_all_files_state_one_version():
    assert not disagreements(ROOT)


@pytest.mark.parametrize("text", ["7.8.9", "7.8.9rc1", "7.8.10.dev12", "7.9.0a2.dev3"])
def test_a_stamp_reaches_every_place_and_comes_back(tree, text):
    before = {path: (tree / path).read_bytes() for path in PLACES}
    old = tree_version(tree)
    assert set(stamp(tree, Version(text))) == set(PLACES), "each file has a place"
    assert tree_version(tree) == Version(text)
    assert not disagreements(tree)
    assert not [path for path in PLACES if f'"{old}"' in (tree / path).read_text()]
    stamp(tree, old)
    assert {path: (tree / path).read_bytes() for path in PLACES} == before


def test_a_place_that_is_gone_stops_before_anything_is_written(tree):
    (tree / "runtime/js/package.json").write_text("{}")
    before = (tree / "pyproject.toml").read_bytes()
    with pytest.raises(ReleaseError, match=r"runtime/js/package.json has no"):
        stamp(tree, Version("7.8.9"))
    assert (tree / "pyproject.toml").read_bytes() == before


def test_a_file_of_another_version_is_told_of(tree):
    path = tree / "runtime/rust/Cargo.toml"
    path.write_text(path.read_text().replace(str(tree_version(tree)), "6.6.6"))
    (line,) = disagreements(tree)
    assert line.startswith("runtime/rust/Cargo.toml states 6.6.6")


@pytest.mark.parametrize(
    ("text", "version"),
    [("v1.2.3", "1.2.3"), ("v1.2.3-4-g0a1b2c", "1.2.4.dev4"), ("v1.2.3rc1", "1.2.3rc1"),
     ("v1.2.3rc1-4-g0a1b2c", "1.2.3rc2.dev4"), ("v10.0.0\n", "10.0.0")],
)  # fmt: skip
def test_descriptions_of_git(text, version):
    assert described(text) == Version(version)


@pytest.mark.parametrize("text", ["1.2.3", "v1.2", "v1.2.3+local", "vnext", "v1.2.3.post1", ""])
def test_tags_that_are_no_version(text):
    with pytest.raises(ReleaseError, match=r"name tags v1\.2\.3"):
        described(text)


@pytest.mark.parametrize(
    ("version", "text"),
    [("1.2.3", "1.2.3"), ("1.2.3rc1", "1.2.3-rc.1"), ("1.2.3.dev4", "1.2.3-dev.4"),
     ("1.2.3b2.dev4", "1.2.3-beta.2.dev.4")],
)  # fmt: skip
def test_versions_of_npm_and_cargo(version, text):
    assert semantic(Version(version)) == text


def test_the_version_is_that_of_the_tag(tree):
    stated = tree_version(tree)
    assert release_version(tree) == stated, "no git, no tag"
    git(tree, "init")
    git(tree, "add", ".")
    git(tree, "commit", "-m", "First")
    assert release_version(tree) == Version(f"{stated.base_version}.dev1")
    git(tree, "tag", "other")
    git(tree, "tag", "v2.0.0")
    assert release_version(tree) == Version("2.0.0")
    git(tree, "commit", "--allow-empty", "-m", "Second")
    assert release_version(tree) == Version("2.0.1.dev1")


def test_an_archive_of_a_tag_knows_it(tree, tmp_path_factory):
    shutil.copy(ROOT / ".gitattributes", tree)
    git(tree, "init")
    git(tree, "add", ".")
    git(tree, "commit", "-m", "First")
    git(tree, "tag", "v2.0.0")
    folder = tmp_path_factory.mktemp("archive")
    git(tree, "archive", "--output", str(folder / "a.tar"), "v2.0.0")
    shutil.unpack_archive(folder / "a.tar", folder / "tree")
    assert release_version(folder / "tree") == Version("2.0.0")


def test_a_wheel_depends_on_no_clock(tmp_path):
    contents = {"a/b,c.py": b"x = 1\n", "a-1.dist-info/METADATA": b"Name: a\n",
                "a-1.dist-info/RECORD": b"old,,\n"}  # fmt: skip
    for year in (2001, 2020):
        with zipfile.ZipFile(tmp_path / f"{year}.whl", "w") as made:
            for name, data in sorted(contents.items(), reverse=year == 2001):
                made.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), data)
        add_to_wheel(tmp_path / f"{year}.whl", {"sboms/s.json": b"{}"}, 10**9)
    assert (tmp_path / "2001.whl").read_bytes() == (tmp_path / "2020.whl").read_bytes()
    with zipfile.ZipFile(tmp_path / "2001.whl") as made:
        assert {item.date_time for item in made.infolist()} == {(2001, 9, 9, 1, 46, 40)}
        *rows, last = csv.reader(made.read("a-1.dist-info/RECORD").decode().splitlines())
        assert last == ["a-1.dist-info/RECORD", "", ""]
        assert [row[0] for row in rows] == [
            "a/b,c.py", "a-1.dist-info/METADATA", "a-1.dist-info/sboms/s.json",
        ]  # fmt: skip
        for name, digest, size in rows:
            data = made.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={found}", str(len(data)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2001.whl", "2020.whl"]
