"""The graph of jobs that depend on each other, in layers: a job is one layer below the lowest of its parents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from watchbill.dashboard.charts.drawing import data_table, draw, name_shape, write

MOST_NODES = 300
FOLD_BEYOND = 30
_WIDTH, _HEIGHT, _GAP, _LAYER = 156, 36, 24, 64
_LETTERS = 19
Edge = tuple[str, str]  # parent, child


@dataclass(frozen=True)
class Node:
    """`address` is where its page is; `count` how many jobs it stands for."""

    id: str
    type: str
    state: str
    note: str = ""
    address: str | None = None
    count: int = 1


def dependency_graph(
    title: str, nodes: Sequence[Node], edges: Iterable[Edge], *, me: str | None = None, fold_beyond: int = FOLD_BEYOND
) -> Markup:
    """Siblings of one type and state beyond `fold_beyond` are one box. Of more than `MOST_NODES` boxes, those next to
    `me` are drawn, and the sentence says how many there are."""
    known = {node.id for node in nodes}
    wanted = sorted({edge for edge in edges if edge[0] in known and edge[1] in known})
    shown, drawn_edges = _fold(nodes, wanted, me, fold_beyond)
    total = len(shown)
    if total > MOST_NODES:
        shown, drawn_edges = _keep_neighbors(shown, drawn_edges, me or shown[0].id)
    layers = _order(_find_layers(shown, drawn_edges), drawn_edges)
    places = _place(layers)
    widest = max((len(layer) for layer in layers), default=1)
    width, height = widest * (_WIDTH + _GAP) - _GAP, max(len(layers), 1) * _LAYER - (_LAYER - _HEIGHT)
    paths = "".join(_bend(places[parent], places[child]) for parent, child in drawn_edges)
    shapes = [draw("path", cls="edge", d=paths)] if paths else []
    shapes += [_draw_node(node, *places[node.id], is_me=node.id == me) for layer in layers for node in layer]
    # Its boxes are links, so it is a group and not one image.
    picture_ = draw(
        "svg",
        *shapes,
        role="group",
        aria_label=_say(title, shown, total),
        cls="plot",
        width=width + 2,
        height=height + 2,
        viewBox=f"-1 -1 {width + 2} {height + 2}",
    )
    parents = defaultdict(list)
    names = {node.id: _name(node) for node in shown}
    for parent, child in drawn_edges:
        parents[child].append(names[parent])
    rows = [(_name(node), node.state, ", ".join(sorted(set(parents[node.id]))) or "-") for node in shown]
    box = draw("div", picture_, cls="scroll", tabindex=0, role="region", aria_label=title)
    return draw("div", box, data_table(title, ["Job", "State", "Waits for"], rows))


def _fold(nodes: Sequence[Node], edges: Sequence[Edge], me: str | None, beyond: int) -> tuple[list[Node], list[Edge]]:
    parents, children = _neighbors(edges)
    alike: dict[tuple[object, ...], list[Node]] = defaultdict(list)
    for node in nodes:
        own = node.id if node.id == me else None
        alike[own, node.type, node.state, parents[node.id], children[node.id]].append(node)
    shown: list[Node] = []
    renamed: dict[str, str] = {}
    for group in alike.values():
        if len(group) > beyond:
            shown.append(replace(group[0], count=sum(node.count for node in group), address=None, note=group[0].state))
            renamed |= {node.id: group[0].id for node in group}
        else:
            shown += group
    position = {node.id: index for index, node in enumerate(nodes)}
    shown.sort(key=lambda node: position[node.id])
    return shown, sorted({(renamed.get(a, a), renamed.get(b, b)) for a, b in edges})


def _keep_neighbors(nodes: Sequence[Node], edges: Sequence[Edge], me: str) -> tuple[list[Node], list[Edge]]:
    parents, children = _neighbors(edges)
    kept, reached = {me}, [me]
    for reached_id in reached:  # grows while it is walked: breadth first
        for neighbor in sorted(parents[reached_id] | children[reached_id]):
            if neighbor not in kept and len(kept) < MOST_NODES:
                kept.add(neighbor)
                reached.append(neighbor)
    return [node for node in nodes if node.id in kept], [edge for edge in edges if set(edge) <= kept]


def _find_layers(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[list[Node]]:
    """By the longest path. Edges that make a circle, which the database refuses, are not followed twice."""
    parents, children = _neighbors(edges)
    waiting = {node.id: len(parents[node.id]) for node in nodes}
    depth = dict.fromkeys(waiting, 0)
    ready = [node.id for node in nodes if waiting[node.id] == 0]
    for parent in ready:  # grows too
        for child in sorted(children[parent]):
            depth[child] = max(depth[child], depth[parent] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    layers: list[list[Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        layers[depth[node.id]].append(node)
    return layers


def _order(layers: list[list[Node]], edges: Sequence[Edge]) -> list[list[Node]]:
    """Each job below the middle of its parents, so that few edges cross."""
    parents, _ = _neighbors(edges)
    place: dict[str, float] = {}
    for layer in layers:
        middles = {
            node.id: sum(place[parent] for parent in known) / len(known)
            if (known := parents[node.id] & place.keys())
            else 0.0
            for node in layer
        }
        layer.sort(key=lambda node: middles[node.id])
        for index, node in enumerate(layer):
            place[node.id] = index - (len(layer) - 1) / 2
    return layers


def _place(layers: Sequence[Sequence[Node]]) -> dict[str, tuple[float, float]]:
    widest = max((len(layer) for layer in layers), default=1)
    return {
        node.id: ((widest - len(layer)) * (_WIDTH + _GAP) / 2 + index * (_WIDTH + _GAP), float(depth * _LAYER))
        for depth, layer in enumerate(layers)
        for index, node in enumerate(layer)
    }


def _bend(parent: tuple[float, float], child: tuple[float, float]) -> str:
    x1, y1, x2, y2 = parent[0] + _WIDTH / 2, parent[1] + _HEIGHT, child[0] + _WIDTH / 2, child[1]
    bend = 18 if x1 != x2 else 0
    return f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"


def _draw_node(node: Node, x: float, y: float, *, is_me: bool) -> Markup:
    name = _name(node)
    cut = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
    icon = draw("svg", draw("use", href=f"#i-{node.state}"), x=10, y=12, width=12, height=12, cls=f"i {node.state}")
    shapes = [
        draw("rect", cls="box me" if is_me else "box", width=_WIDTH, height=_HEIGHT, rx=4),
        icon,
        write(cut, cls="bold" if is_me else "ink", x=30, y=16),
        write("this job" if is_me else node.note or node.state, x=30, y=30),
        name_shape(f"{name}, {node.state}"),
    ]
    group = draw("g", *shapes, transform=f"translate({x:g} {y:g})")
    return draw("a", group, href=node.address) if node.address and not is_me else group


def _name(node: Node) -> str:
    return f"{node.type} × {node.count:,}" if node.count > 1 else node.type


def _say(title: str, nodes: Sequence[Node], total: int) -> str:
    states: Mapping[str, int] = {
        state: sum(node.count for node in nodes if node.state == state)
        for state in sorted({node.state for node in nodes})
    }
    said = ", ".join(f"{number:,} {state}" for state, number in states.items())
    part = f" The {len(nodes):,} nearest of {total:,} are drawn." if total > len(nodes) else ""
    return f"{title}: {said or 'no job'}.{part}"


def _neighbors(edges: Iterable[Edge]) -> tuple[defaultdict[str, frozenset[str]], defaultdict[str, frozenset[str]]]:
    parents: defaultdict[str, set[str]] = defaultdict(set)
    children: defaultdict[str, set[str]] = defaultdict(set)
    for parent, child in edges:
        parents[child].add(parent)
        children[parent].add(child)
    return _freeze(parents), _freeze(children)


def _freeze(found: Mapping[str, set[str]]) -> defaultdict[str, frozenset[str]]:
    return defaultdict(frozenset, {name: frozenset(others) for name, others in found.items()})
