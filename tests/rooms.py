"""The rooms of the compiler, told from its imports, and the picture of them.

Written by ``python -m tests.rooms``: ``docs/architecture.svg``.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

PACKAGE = Path(__file__).parents[1] / "flow2onnx"
PICTURE = PACKAGE.parent / "docs" / "architecture.svg"
ABOVE = {"__init__", "__main__"}  # the package itself stands above every room

Arrows = Mapping[str, frozenset[str]]

# What each box of the picture says below its name.
CAPTIONS = {
    "errors": "one tree of exceptions",
    "source": "the user's line",
    "dtypes": "element types",
    "proto": "OneFlow's messages",
    "typing": "placeholders, results",
    "config": "the one table of flags",
    "graph": "builder, types, verify",
    "lowering": "forms of one computation",
    "analysis": "in-place, live ranges",
    "onnx_io": "read, append, serialize",
    "checkpoint": "files of variables",
    "autodiff": "a rule for each operator",
    "passes": "rewrites, in one order",
    "trace": "jobs, blobs, variables",
    "data": "records, images, batches",
    "optim": "updates, schedules",
    "ops": "operators by family",
    "compile": "a job and its variants",
    "engine": "sessions on the runtime",
    "export": "models, bundles, checks",
    "imported": "ONNX models that learn",
    "integrations": "other people's tools",
    "api": "three generations",
    "cli": "the commands",
}


def module_of(path: Path) -> str:
    """The dotted name of a file's module."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def part_of(path: Path) -> str:
    """The room that a file is in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The imports of a module, with their lines; names too, as they may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


@cache
def imported_modules() -> dict[str, set[str]]:
    """For each module those of the package that it imports, anywhere in it, for types or to run."""
    files = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        names = {name for name, _ in imports(ast.parse(path.read_text("utf-8")))}
        modules = {name if name in files else name.rpartition(".")[0] for name in names}
        found[module] = modules & files.keys() - {module, "flow2onnx"}
    return found


def arrows() -> dict[str, frozenset[str]]:
    """For each room the others that it imports."""
    found: dict[str, set[str]] = {}
    for module, others in imported_modules().items():
        room = module.split(".")[1] if "." in module else "__init__"
        found.setdefault(room, set()).update(other.split(".")[1] for other in others)
    return {room: frozenset(o - {room}) for room, o in found.items() if room not in ABOVE}


def floors(found: Arrows) -> dict[str, int]:
    """The floor of each room: 0 imports nothing, others stand one above the highest they import."""

    @cache
    def floor(room: str) -> int:
        return 1 + max((floor(other) for other in found[room]), default=-1)

    return {room: floor(room) for room in found}


def direct(found: Arrows) -> Iterator[tuple[str, str]]:
    """The arrows that no way over a third room stands for (the transitive reduction)."""

    @cache
    def reached(room: str) -> frozenset[str]:
        return found[room].union(*(reached(other) for other in found[room]))

    for room, others in found.items():
        for other in sorted(others):
            if not any(other in reached(third) for third in others - {other}):
                yield room, other


# A job's way, from the user's function to numbers or files.
WAY = ("api", "trace", "ops", "autodiff", "optim", "passes", "compile", "engine", "export")

WIDTH, HEIGHT, GAP, RISE, MARGIN = 168, 46, 26, 92, 24


def picture(found: Arrows) -> str:
    """The rooms by floor as SVG, arrows from each to what it imports."""
    by_floor: dict[int, list[str]] = {}
    for room, floor in floors(found).items():
        by_floor.setdefault(floor, []).append(room)
    widest, top = max(map(len, by_floor.values())), max(by_floor)
    width = 2 * MARGIN + widest * WIDTH + (widest - 1) * GAP
    height = 2 * MARGIN + top * RISE + HEIGHT
    places = _places(by_floor, found, width)
    lines = [_arrow(places[a], places[b]) for a, b in direct(found)]
    boxes = [_box(room, *place) for room, place in places.items()]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" role="img">',
        "<title>The rooms of flow2onnx and what they import</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#64748b"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *lines, *boxes, "</svg>", "",
    ])  # fmt: skip


def _places(
    by_floor: Mapping[int, list[str]], found: Arrows, width: int
) -> dict[str, tuple[float, float]]:
    """The middle of each box: below what it imports, as far as its floor has space."""
    places: dict[str, tuple[float, float]] = {}
    near = dict[str, set[str]]()
    for a, b in direct(found):
        near.setdefault(a, set()).add(b)
    for floor in sorted(by_floor):
        rooms = by_floor[floor]
        wish = {
            r: sum(places[o][0] for o in near[r]) / len(near[r]) if r in near else width / 2
            for r in rooms
        }
        rooms = sorted(rooms, key=lambda r: (wish[r], r))
        step, span = WIDTH + GAP, len(rooms) * WIDTH + (len(rooms) - 1) * GAP
        left = min(
            max(sum(wish.values()) / len(rooms) - span / 2, MARGIN), width - MARGIN - span
        )  # fmt: skip
        for i, room in enumerate(rooms):
            places[room] = left + i * step + WIDTH / 2, MARGIN + floor * RISE + HEIGHT / 2
    return places


def _arrow(user: tuple[float, float], used: tuple[float, float]) -> str:
    (x, y), (u, v) = user, used
    y, v = y - HEIGHT / 2, v + HEIGHT / 2 + 2
    bend = (y - v) / 2
    return (
        f'<path d="M{x:.0f} {y:.0f}C{x:.0f} {y - bend:.0f} {u:.0f} {v + bend:.0f} {u:.0f} {v:.0f}" '
        'fill="none" stroke="#94a3b8" stroke-width="1.3" marker-end="url(#head)"/>'
    )


def _box(room: str, x: float, y: float) -> str:
    left, top = x - WIDTH / 2, y - HEIGHT / 2
    fill = "#dbeafe" if room in WAY else "#f8fafc"
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="7" '
        f'fill="{fill}" stroke="#2563eb"/>'
        f'<text x="{x:.0f}" y="{y - 4:.0f}" text-anchor="middle" font-size="15" '
        f'font-weight="600" fill="#0f172a">{escape(room)}</text>'
        f"{_step(room, left, top)}"
        f'<text x="{x:.0f}" y="{y + 14:.0f}" text-anchor="middle" font-size="11.5" '
        f'fill="#475569">{escape(CAPTIONS[room])}</text>'
    )


def _step(room: str, left: float, top: float) -> str:
    """The number that a room has on the way of a job, in the corner of its box."""
    if room not in WAY:
        return ""
    return (
        f'<circle cx="{left + 4:.0f}" cy="{top + 4:.0f}" r="10" fill="#2563eb"/>'
        f'<text x="{left + 4:.0f}" y="{top + 8:.0f}" text-anchor="middle" font-size="12" '
        f'fill="#ffffff">{WAY.index(room) + 1}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(arrows()), encoding="utf-8")
