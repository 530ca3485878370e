"""Check built pages: python docs/site/check_pages.py build/docs/html.

Each link within them leads to a page and a place that exist, and nothing that a page shows is
fetched from another host: scripts, styles, fonts and pictures are all in the folder.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["faults"]

_SHOWN = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}
_NOT_FETCHED = {"canonical", "index", "search", "next", "prev", "author", "copyright", "up"}
_IN_STYLES = re.compile(r"""(?:url\(|@import)\s*['"]?(https?:)?//[^)'";]+""")


class _Page(HTMLParser):
    """The places of a page, where its links lead, and what it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.shown: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[n] for n in ("id", "name") if n in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        address = given.get(_SHOWN.get(tag, ""), "")
        if address and not _NOT_FETCHED & set(given.get("rel", "").split()):
            self.shown.append(address)


def faults(folder: Path) -> Iterator[str]:
    """A line for each dead link and each thing of another host, by page."""
    for path in sorted(folder.rglob("*.html")):
        page, name = _read(path), path.relative_to(folder)
        for link in page.links:
            if not _is_alive(path, link):
                yield f"{name}: {link} leads nowhere"
        for address in page.shown:
            if _is_foreign(address):
                yield f"{name}: {address} is of another host"
            elif not _is_alive(path, address):
                yield f"{name}: {address} is missing"
    for path in sorted(folder.rglob("*.css")):
        for found in _IN_STYLES.finditer(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(folder)}: {found[0]} is of another host"


@cache
def _read(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


def _is_foreign(address: str) -> bool:
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https")


def _is_alive(path: Path, link: str) -> bool:
    """True for a file and place that exist; other hosts and schemes are not asked."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return False
    if not parts.fragment or target.suffix != ".html":
        return True
    return unquote(parts.fragment) in _read(target).places


def main() -> None:
    """Print the faults; fail if there are any."""
    folder = Path(sys.argv[1])
    found = list(faults(folder))
    print(*found, sep="\n")
    if found or not (folder / "index.html").exists():
        sys.exit(f"{len(found)} faults in {folder}")
    print(f"{len(list(folder.rglob('*.html')))} pages: every link leads somewhere")


if __name__ == "__main__":
    main()
