"""Links to folders: to the README in it, or no link where there is none.

On a hosting service a folder is a page; in built pages it is not.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

__all__ = ["setup"]

_LINK = re.compile(r"\[([^\]\n]+)\]\(([\w./-]+)\)")


def relink(sphinx: Sphinx, page: str, source: list[str]) -> None:
    """Replace the links of a page that lead to folders."""
    home = Path(sphinx.srcdir, page).parent

    def other(found: re.Match[str]) -> str:
        text, address = found.groups()
        if not (home / address).is_dir():
            return found[0]
        readme = Path(address, "README.md")
        return f"[{text}]({readme})" if (home / readme).is_file() else f"`{text}`"

    source[0] = _LINK.sub(other, source[0])


def setup(sphinx: Sphinx) -> dict[str, bool]:
    """Relink each page as it is read."""
    sphinx.connect("source-read", relink)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
