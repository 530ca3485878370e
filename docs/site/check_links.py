"""Report what became of the links to other hosts: python check_links.py build/docs/links.

Reads what Sphinx's linkcheck has written. A link is dead where its host answers that it is, or does
not answer while others do. Where no host at all can be reached, nothing is known of any link: that
is said, and is no failure. Links within the pages are the concern of `check_pages.py`.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["verdict"]

ALIVE, DEAD = ("working", "redirected"), ("broken", "timeout")

# Exceptions of the connection itself, as the texts of linkcheck name them.
_SILENT = ("NameResolutionError", "NewConnectionError", "ConnectTimeout", "ProxyError")

Link = Mapping[str, str | int]


def main() -> None:
    """Print a line for each dead link and a sum; exit with 1 where there is one."""
    text = Path(sys.argv[1], "output.json").read_text(encoding="utf-8")
    lines, is_good = verdict([json.loads(line) for line in text.splitlines()])
    print("\n".join(lines))
    sys.exit(0 if is_good else 1)


def verdict(links: Iterable[Link]) -> tuple[list[str], bool]:
    """The report on links, and True if it is good."""
    asked = [link for link in links if str(link["uri"]).startswith("http")]
    alive = sum(link["status"] in ALIVE for link in asked)
    dead = [link for link in asked if link["status"] in DEAD]
    unknown = [link for link in dead if _is_unreachable(link)]
    if unknown and not alive and len(unknown) == len(dead):
        hosts = sorted({str(link["uri"]).split("/")[2] for link in unknown})
        return [f"not checked: {len(unknown)} links, as no other host can be reached from here: "
                f"{', '.join(hosts)}"], True  # fmt: skip
    told = [f"{link['filename']}:{link['lineno']}: {link['uri']}: {link['info']}" for link in dead]
    return [*told, f"{alive} links to other hosts are alive, {len(dead)} dead"], not dead


def _is_unreachable(link: Link) -> bool:
    """True where nobody answered, not even to refuse."""
    return link["status"] == "timeout" or any(text in str(link["info"]) for text in _SILENT)


if __name__ == "__main__":
    main()
