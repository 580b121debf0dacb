"""What the charts draw, and that no value can become markup."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from datetime import timedelta
from xml.etree import ElementTree as ET

import pytest

from tests.dashboard.charts.samples import GOLDEN, NOW, SAMPLES, draw_hostile, lay_out
from watchbill.dashboard import charts
from watchbill.dashboard.charts.graph import MOST_NODES
from watchbill.dashboard.charts.lanes import MOST_SHAPES
from watchbill.dashboard.charts.scales import Scale, choose_linear, choose_log, choose_seconds, seconds, spread


def read(text: str) -> ET.Element:
    return ET.fromstring(f"<div>{text}</div>")


def draw(nodes: list[charts.Node], edges: list[tuple[str, str]], **options: str) -> ET.Element:
    return read(charts.dependency_graph("Graph", nodes, edges, **options))  # type: ignore[arg-type]


def find_boxes(drawn: ET.Element) -> dict[str, tuple[float, float]]:
    return {
        text.text or "": (float(place[0]), float(place[1]))
        for group in drawn.iter("g")
        if (text := group.find("text")) is not None
        and (place := re.findall(r"-?[\d.]+", group.get("transform", ""))) != []
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_a_chart_is_drawn_as_before(name: str) -> None:
    assert lay_out(name) == (GOLDEN / f"{name}.html").read_text(), (
        "if the change is wanted, run python -m tests.dashboard.charts.samples and look at the difference"
    )


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_chart_is_well_formed_and_has_no_inline_style(name: str) -> None:
    for element in read(SAMPLES[name]()).iter():
        assert not {key for key in element.attrib if key == "style" or key.startswith("on")}
        if element.get("role") == "img":
            assert element.get("aria-label")


def test_values_stay_text() -> None:
    text = str(draw_hostile())
    assert "<script" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("name", ["stacked_area", "percentile_lines", "bars", "node_timeline", "attempts", "token_map"])
def test_a_chart_has_its_values_as_a_table(name: str) -> None:
    drawn = read(SAMPLES[name]())
    rows = drawn.findall(".//details//tbody/tr")
    columns = drawn.findall(".//details//thead/tr/th")
    assert len(rows) > 1
    assert len(columns) >= 2


def test_what_failed_and_died_has_a_pattern_beside_its_colour() -> None:
    text = str(SAMPLES["stacked_area"]())
    assert 'fill="url(#p-failed)"' in text
    assert 'fill="url(#p-dead)"' in text


def test_a_job_is_below_its_lowest_parent() -> None:
    nodes = [charts.Node(name, name, "succeeded") for name in "abcd"]
    places = find_boxes(draw(nodes, [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d")]))
    depth = {name: place[1] for name, place in places.items()}
    assert depth["a"] < depth["b"] < depth["c"] < depth["d"]


def test_no_two_boxes_overlap() -> None:
    nodes = [charts.Node(str(n), f"t{n}", "queued") for n in range(40)]
    places = find_boxes(draw(nodes, [("0", str(n)) for n in range(1, 40)]))
    assert len(set(places.values())) == 40


@pytest.mark.parametrize(("siblings", "boxes"), [(30, 31), (31, 2)])
def test_siblings_fold_beyond_thirty(siblings: int, boxes: int) -> None:
    nodes = [charts.Node("p", "parent", "succeeded")]
    nodes += [charts.Node(f"c{n}", "child", "running") for n in range(siblings)]
    drawn = draw(nodes, [("p", f"c{n}") for n in range(siblings)])
    assert len(drawn.findall(".//rect[@class='box']")) == boxes
    assert any(f"{siblings} running" in element.get("aria-label", "") for element in drawn.iter())


def test_of_a_large_graph_the_neighborhood_is_drawn() -> None:
    nodes = [charts.Node(str(n), f"t{n}", "queued") for n in range(1000)]
    drawn = draw(nodes, [(str(n), str(n + 1)) for n in range(999)], me="500")
    assert len(drawn.findall(".//rect[@class='box']")) == MOST_NODES - 1
    assert len(drawn.findall(".//rect[@class='box me']")) == 1
    assert any("300 nearest of 1,000" in element.get("aria-label", "") for element in drawn.iter())


def test_a_circle_of_jobs_does_not_hang() -> None:
    draw([charts.Node(name, name, "blocked") for name in "ab"], [("a", "b"), ("b", "a")])


def test_a_timeline_has_at_most_2000_shapes() -> None:
    window = charts.Window(NOW - timedelta(minutes=5), NOW)
    runs = [
        charts.Run(window.since + timedelta(seconds=n % 200), window.since + timedelta(seconds=n % 200 + 4 + n % 9),
                   "succeeded", "t")
        for n in range(3000)
    ]  # fmt: skip
    lanes = [charts.Lane(f"w{n}", "running", "running", "", runs) for n in range(4)]
    shapes = list(read(charts.node_timeline("Runs", lanes, window)).iter("rect"))
    assert len(shapes) <= MOST_SHAPES
    assert charts.count_short_runs(lanes, window) > 0


def test_runs_at_the_same_time_have_rows_of_their_own() -> None:
    window = charts.Window(NOW - timedelta(minutes=5), NOW)
    runs = [charts.Run(NOW - timedelta(seconds=100 - n), NOW, "succeeded", f"t{n}") for n in range(3)]
    drawn = read(charts.node_timeline("Runs", [charts.Lane("w", "running", "running", "", runs)], window))
    bars = [rect for rect in drawn.iter("rect") if rect.find("title") is not None]
    assert len({bar.get("y") for bar in bars}) == 3


@pytest.mark.parametrize("ranges", [[(0, 9999)], [(5, 7)], [(95, 105)], [(50, 349)], [(100, 199), (300, 300)]])
def test_the_map_covers_each_token_once(ranges: list[tuple[int, int]]) -> None:
    drawn = read(charts.token_map("Map", [charts.TokenRange(*each, "w1") for each in ranges], ["w1"]))
    path = next(element.get("d", "") for element in drawn.iter("path") if element.get("class") == "o1")
    covered: list[int] = []
    for x, y, width, height in re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)", path):
        covered += [
            (int(y) + row) * 100 + int(x) + column for row in range(int(height)) for column in range(int(width))
        ]
    assert sorted(covered) == [token for first, last in ranges for token in range(first, last + 1)]


@pytest.mark.parametrize("most", [0, 0.3, 1, 7, 99, 100, 12_400, 4.2e6])
@pytest.mark.parametrize("choose", [choose_linear, choose_seconds])
def test_a_linear_scale_has_room_for_the_highest_value_and_few_lines(choose: Callable[..., Scale], most: float) -> None:
    scale = choose(most, bottom=168, top=14)
    assert scale.high >= most
    assert 2 <= len(scale.ticks) <= 6
    assert scale.place(scale.high) == 14
    assert scale.place(0) == 168


def test_a_scale_keeps_values_outside_on_its_edge() -> None:
    scale = choose_log([0.02, 5], bottom=148, top=14)
    assert scale.ticks == (0.01, 0.1, 1.0, 10.0)
    assert scale.place(1e-9) == 148
    assert scale.place(1e9) == 14


def test_labels_keep_their_distance_and_order() -> None:
    moved = spread([50.0, 51.0, 20.0, 52.0], 14)
    assert moved[2] < moved[0] < moved[1] < moved[3]
    ordered = sorted(moved)
    assert all(b - a > 13.5 for a, b in itertools.pairwise(ordered))


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0014, "1.4 ms"), (0.4, "0.4 s"), (1.4, "1.4 s"), (473, "7 min 53 s"), (3600, "1 h"), (187_200, "2 d 4 h")],
)
def test_seconds_are_written_for_people(value: float, words: str) -> None:
    assert seconds(value) == words
