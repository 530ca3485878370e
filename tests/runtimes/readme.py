"""Pages whose code is run: files that they show, and commands, in the order of the page."""

import re
import shutil
from pathlib import Path

from tests.runtimes.c_driver import MLP
from tests.runtimes.languages.language import run

__all__ = ["run_page"]

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def run_page(page: Path, archive: Path, folder: Path) -> str:
    """The output of the commands of a page.

    ```` ```LANGUAGE FILE ```` is a file to write, ```` ```sh ```` commands to run, in a folder with
    the release archive and a folder `bundle`.
    """
    shutil.copy(archive, folder)
    shutil.copytree(MLP / "bundle", folder / "bundle")
    printed = []
    blocks = _BLOCK.findall(page.read_text("utf-8"))
    assert any(name for _, name, _ in blocks), f"{page} shows no file"
    for language, name, content in blocks:
        if name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        elif language == "sh":
            printed.append(run("bash", "-euc", content, cwd=folder))
    return "".join(printed)
