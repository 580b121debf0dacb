"""The tokens of a group as a map: a cell per token, row by row. Colour is the owner, hatched moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from watchbill.dashboard.charts.drawing import data_table, draw, picture, swatch

SIDE = 100
_OWNER_COLORS = 6


@dataclass(frozen=True)
class TokenRange:
    """Tokens `first` to `last`. `owner` is None for tokens without an owner."""

    first: int
    last: int
    owner: str | None
    is_moving: bool = False


def color_of_owner(owners: Sequence[str], owner: str | None) -> str:
    """The class of an owner, by its place in the list of owners. A seventh has the colour of the first."""
    return "o0" if owner is None else f"o{owners.index(owner) % _OWNER_COLORS + 1}"


def token_map(title: str, ranges: Sequence[TokenRange], owners: Sequence[str], total: int = SIDE * SIDE) -> Markup:
    """`owners` in the order of their colours. Of more or fewer tokens than cells, a cell stands for some or for a part
    of one."""
    paths: dict[str, list[str]] = {}
    moving: list[str] = []
    sums: dict[str, int] = {}
    for each in ranges:
        cells = _outline(each.first * SIDE * SIDE // total, (each.last + 1) * SIDE * SIDE // total - 1)
        paths.setdefault(color_of_owner(owners, each.owner), []).append(cells)
        if each.is_moving:
            moving.append(cells)
        for name in [each.owner or "unowned", *(["moving"] if each.is_moving else [])]:
            sums[name] = sums.get(name, 0) + each.last - each.first + 1
    shapes = [draw("path", cls=cls, d="".join(cells)) for cls, cells in sorted(paths.items())]
    shapes += [draw("path", fill="url(#p-move)", d="".join(moving))] if moving else []
    grid = "".join(f"M0 {place}H{SIDE}M{place} 0V{SIDE}" for place in range(10, SIDE, 10))
    shapes.append(draw("path", cls="cells", d=grid))
    said = ", ".join(f"{name} {number:,}" for name, number in sums.items())
    drawn = picture(
        f"{title}: {said or 'no token'}",
        *shapes,
        cls="plot map",
        viewBox=f"0 0 {SIDE} {SIDE}",
        shape_rendering="crispEdges",
    )
    rows = [
        (f"{each.first:,} to {each.last:,}", each.owner or "unowned", "yes" if each.is_moving else "no")
        for each in ranges[:300]
    ]
    return draw("div", drawn, data_table(title, ["Tokens", "Owner", "Moving"], rows))


def explain_owners(owners: Sequence[str]) -> Markup:
    """The legend."""
    entries = [swatch(owner, _cell(color_of_owner(owners, owner))) for owner in owners]
    stripes = draw("path", d="M1 11L11 1M1 6l5-5M6 11l5-5", stroke="currentColor")
    entries += [swatch("moving", _cell("o5"), stripes), swatch("unowned", _cell("o0"))]
    return Markup("").join(entries)


def owner_cell(owners: Sequence[str], owner: str | None) -> Markup:
    """The colour of an owner, for a table."""
    return draw("svg", _cell(color_of_owner(owners, owner)), width=12, height=12, aria_hidden="true")


def _cell(cls: str) -> Markup:
    return draw("rect", cls=cls, width=12, height=12, rx=2)


def _outline(first: int, last: int) -> str:
    """Rectangles: the rest of the first row, whole rows, the beginning of the last one."""
    parts = []
    while first <= last:
        row, column = divmod(first, SIDE)
        if column == 0 and last - first + 1 >= SIDE:
            rows = (last - first + 1) // SIDE
            parts.append(f"M0 {row}h{SIDE}v{rows}h-{SIDE}z")
            first += rows * SIDE
        else:
            width = min(SIDE - column, last - first + 1)
            parts.append(f"M{column} {row}h{width}v1h-{width}z")
            first += width
    return "".join(parts)
