"""Writes SVG as text. Colours come from classes of the stylesheet, so one drawing serves both themes, and the policy of
the pages allows no inline style.

A wide chart has two layers: an outer SVG without viewBox, in which text, marks and bars use percentages, and an inner
one with viewBox and `preserveAspectRatio="none"` for paths. So it fills any width, and its text stays 12 px.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

# What fills a shape of each state. Colour is never alone: what failed is hatched, what is dead is crossed.
PATTERNS = {"failed": "url(#p-failed)", "dead": "url(#p-dead)"}
Value = str | int | float | None


def write_number(value: float) -> str:
    """At most two decimals: 3, 3.5, 0.01."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def draw(name: str, *inner: Markup, **attributes: Value) -> Markup:
    """An element. `cls` is its class, and an underscore in a name is a hyphen: `draw("rect", cls="h1", x=5)`."""
    written = "".join(
        f' {"class" if key == "cls" else key.replace("_", "-")}="{_write_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not inner:
        return Markup(f"<{name}{written}/>")  # noqa: S704  values are escaped, names are ours
    return Markup(f"<{name}{written}>{''.join(inner)}</{name}>")  # noqa: S704  the same


def write(text: object, **attributes: Value) -> Markup:
    """An SVG text."""
    return draw("text", escape(text), **attributes)


def name_shape(text: str) -> Markup:
    """The tooltip of a shape."""
    return draw("title", escape(text))


def picture(label: str, *inner: Markup, **attributes: Value) -> Markup:
    """An SVG that screen readers read as one image with this label."""
    return draw("svg", *inner, role="img", aria_label=label, **attributes)


def fill(state: str, *, quiet: bool = True) -> dict[str, Value]:
    """The attributes that fill a shape inside `<g class="STATE">`."""
    if state in PATTERNS:
        return {"fill": PATTERNS[state]}
    return {"cls": "calm" if quiet else "solid"}


def line(points: Iterable[tuple[float, float]]) -> str:
    """The path through these points."""
    return "M" + "L".join(f"{write_number(x)} {write_number(y)}" for x, y in points)


def split_at_gaps(xs: Sequence[float], values: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """The runs of values between gaps, so that a line ends where the data ends."""
    runs: list[list[tuple[float, float]]] = []
    is_open = False
    for x, value in zip(xs, values, strict=True):
        if value is None:
            is_open = False
        elif is_open:
            runs[-1].append((x, value))
        else:
            runs.append([(x, value)])
            is_open = True
    return runs


def swatch(text: str, *shapes: Markup) -> Markup:
    """An entry of a legend."""
    icon = draw("svg", *shapes, width=12, height=12, aria_hidden="true")
    return draw("span", icon, escape(text), cls="key")


def swatch_of_state(text: str, state: str, *, quiet: bool = True) -> Markup:
    return swatch(text, draw("g", draw("rect", **fill(state, quiet=quiet), width=12, height=12, rx=2), cls=state))


def data_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """What the chart shows, as a table. The scripts read the tooltips of the chart from it."""
    head = Markup("").join(draw("th", escape(name), scope="col") for name in columns)
    body = Markup("").join(draw("tr", *(draw("td", escape(cell)) for cell in row)) for row in rows)
    table = draw(
        "table",
        draw("caption", escape(caption), cls="hide"),
        draw("thead", draw("tr", head)),
        draw("tbody", body or Markup(" ")),
    )
    return draw(
        "details",
        draw("summary", Markup("Data table")),
        draw("div", table, cls="scroll", tabindex=0, role="region", aria_label=f"{caption}: data table"),
        cls="data",
    )


def _write_value(value: str | float | None) -> Markup:
    return escape(write_number(value) if isinstance(value, float) else str(value))
