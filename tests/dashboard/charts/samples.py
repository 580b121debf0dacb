"""Charts of made-up values. `python -m tests.dashboard.charts.samples` writes the golden files anew: look at the
difference before you commit it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from markupsafe import Markup

from watchbill.dashboard import charts

GOLDEN = Path(__file__).parent / "golden"
NOW = datetime(2026, 10, 20, 14, 40, tzinfo=UTC)
HOSTILE = "</title><script>alert(1)</script>\"'&"


def _minutes(number: int) -> charts.Time:
    return charts.Time([NOW - timedelta(minutes=number - index) for index in range(number + 1)])


def _at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def draw_stacked_area() -> Markup:
    succeeded = [8000 + 900 * math.sin(index / 5) if index < 54 else None for index in range(61)]
    failed = [None if value is None else (2500.0 if index > 45 else 40.0) for index, value in enumerate(succeeded)]
    dead = [None if value is None else (300.0 if index > 45 else 3.0) for index, value in enumerate(succeeded)]
    layers = [
        charts.Layer(name, name, values)
        for name, values in (("succeeded", succeeded), ("failed", failed), ("dead", dead))
    ]
    marks = [charts.Mark(_at(-900), "deploy v41"), charts.Mark(_at(-420), "mail paused"), charts.Mark(_at(9), "later")]
    return charts.explain_layers(layers) + charts.stacked_area(
        "Ended per minute", _minutes(60), layers, description="Failures begin with v41 at 14:25.", marks=marks
    )


def draw_empty_area() -> Markup:
    return charts.stacked_area("Ended per minute", charts.Time([]), [charts.Layer("succeeded", "succeeded", [])])


def draw_quiet_area() -> Markup:
    return charts.stacked_area("Ended", _minutes(60), [charts.Layer("succeeded", "succeeded", [0.0] * 61)])


def draw_percentile_lines() -> Markup:
    def lines(usual: float) -> dict[str, list[float | None]]:
        return {
            name: [usual * factor * (1.2 + math.sin(index / 7)) if index != 30 else None for index in range(61)]
            for name, factor in (("p50", 1.0), ("p95", 1.6), ("p99", 40.0))
        }

    panels = [
        charts.Panel("wait: from due to start", lines(0.02)),
        charts.Panel("run: from start to end", lines(0.3)),
    ]
    return charts.percentile_lines("Wait and run time", _minutes(60), panels, marks=[charts.Mark(_at(-900), "v41")])


def draw_bars() -> Markup:
    given = [
        charts.Bar(
            f"{day} Oct",
            1100.0 + 40 * (day % 5) if day < 20 else None,
            "failed" if day == 12 else "paused" if day == 20 else "succeeded",
            f"{day} Oct: ran 18 min" if day < 20 else "20 Oct: has not ended",
        )
        for day in range(1, 21)
    ]
    return charts.bars("Run time of the last slots", given, limit=(3600.0, "deadline"))


def draw_sparklines() -> Markup:
    values: list[float | None] = [3.0 + index % 7 for index in range(30)]
    return (
        charts.sparkline("ready jobs", [*values, None, None, *values])
        + charts.sparkline("none", [], "running")
        + charts.sparkline("none yet", [0.0, 0.0], "running", width=96, height=20)
        + charts.spark_bars("trend of 6 h", [0, 0, 1, 7, 0, 3, 0])
    )


def draw_heat_rows() -> Markup:
    ramp: list[float | None] = [0, 0, None, 1, 3, 10, 30, 100, 300, 1000, 3000, 12400]
    return charts.heat_row("ready jobs of mail", ramp, most=12400) + charts.heat_row(
        "shrunk", [float(index) for index in range(240)]
    )


def draw_meters() -> Markup:
    return (
        charts.meter(98, 120)
        + charts.meter(200, 120, "failed")
        + charts.meter(0, 80, "queued")
        + charts.meter(3, None)
        + charts.share_bar(
            "causes", [("paused", "paused", 12400), ("retrying", "failed", 1031), ("blocked", "blocked", 3)]
        )
        + charts.share_bar("no cause", [])
    )


def draw_slot_squares() -> Markup:
    outcomes = ["succeeded"] * 8 + ["retried", "skipped", "missed", "dead", "canceled", "waiting", "running", "overdue"]
    squares = [charts.Square(each, f"slot {index}", index == 3) for index, each in enumerate(outcomes)]
    return charts.explain_squares(
        ["succeeded", "retried", "dead", "overdue", "running", "clock"]
    ) + charts.slot_squares("14 of 16", squares)


def draw_node_timeline() -> Markup:
    def run(begin: float, length: float | None, outcome: str) -> charts.Run:
        end = None if length is None else _at(-900 + begin + length)
        return charts.Run(_at(-900 + begin), end, outcome, "report.load")

    def runs(shift: int, until: float = 900) -> list[charts.Run]:
        found = [run((index * 37 + shift) % 880, 20 + index * 7 % 60, "succeeded") for index in range(24)]
        found += [run(index * 9.0, 0.5, "succeeded") for index in range(90)]
        found += [run(300 + shift, 40, "failed"), run(150 + shift, 90, "dead")]
        found += [run(780 + shift, None, "running")] if until == 900 else []
        return [each for each in found if each.end is None or each.end <= _at(-900 + until)]

    window = charts.Window(_at(-900), NOW)
    lanes = [
        charts.Lane("w1", "running", "running", "98 of 120", runs(0)),
        charts.Lane("w3", "queued", "draining", "drains, 14:31", runs(11), drains_since=_at(-540)),
        charts.Lane("w4", "dead", "dead", "lost 14:29", runs(5, 240), lost_at=_at(-650), lost_text="3 jobs reclaimed"),
        charts.Lane("idle", "running", "running", "0 of 8", []),
    ]
    return charts.node_timeline("Runs of the last 15 minutes", lanes, window)


def draw_attempts() -> Markup:
    attempts = [
        charts.Attempt(1, _at(-582), _at(-581.6), _at(-580.4), "failed", "w2"),
        charts.Attempt(2, _at(-560), _at(-559.9), _at(-558.5), "failed", "w1"),
    ]
    failed = charts.attempt_line("mail.send", charts.Life(_at(-582), attempts, NOW, next_at=_at(41)))
    runs = charts.attempt_line(
        "mail.send", charts.Life(_at(-9), [charts.Attempt(1, _at(-9), _at(-8), None, "running", "w1")], NOW)
    )
    waits = charts.attempt_line("mail.send", charts.Life(_at(-9), [], NOW, next_at=_at(3600)))
    many = [
        charts.Attempt(n, _at(-900 + 60 * n), _at(-899 + 60 * n), _at(-895 + 60 * n), "failed") for n in range(1, 9)
    ]
    return failed + runs + waits + charts.attempt_line("mail.send", charts.Life(_at(-900), many, NOW))


def draw_token_map() -> Markup:
    owners = ["w1", "w2", "w3"]
    ranges = [
        charts.TokenRange(0, 4049, "w1"),
        charts.TokenRange(4050, 4099, "w2", is_moving=True),
        charts.TokenRange(4100, 7339, "w2"),
        charts.TokenRange(7340, 7351, None),
        charts.TokenRange(7352, 9999, "w3"),
    ]
    return (
        charts.explain_owners(owners)
        + charts.token_map("Map of 10,000 tokens", ranges, owners)
        + charts.owner_cell(owners, "w3")
    )


def draw_graph() -> Markup:
    nodes = [
        charts.Node("a", "orders.charge", "succeeded", "0.8 s", "/job/a"),
        charts.Node("b", "invoice.render", "succeeded", "2.1 s", "/job/b"),
        *(charts.Node(f"s{n}", "ship.label", "running") for n in range(31)),
        charts.Node("me", "mail.send", "failed"),
        charts.Node("z", "orders.close.with.a.long.name", "blocked", "waits for both", "/job/z"),
    ]
    edges = [("a", "b"), ("b", "me"), ("me", "z"), ("z", "unknown")]
    edges += [edge for n in range(31) for edge in (("a", f"s{n}"), (f"s{n}", "z"))]
    return charts.dependency_graph("Graph", nodes, edges, me="me")


def draw_hostile() -> Markup:
    """Names that came from payloads and people."""
    run = charts.Run(_at(-300), None, "running", HOSTILE)
    return (
        charts.dependency_graph(HOSTILE, [charts.Node("a", HOSTILE, "queued", HOSTILE, "javascript&'\"<")], [])
        + charts.node_timeline(
            HOSTILE, [charts.Lane(HOSTILE, "running", "running", HOSTILE, [run])], charts.Window(_at(-900), NOW)
        )
        + charts.token_map(HOSTILE, [charts.TokenRange(0, 9999, HOSTILE)], [HOSTILE])
        + charts.explain_owners([HOSTILE])
        + charts.slot_squares(HOSTILE, [charts.Square("dead", HOSTILE)])
        + charts.bars(HOSTILE, [charts.Bar(HOSTILE, 1.0, "dead", HOSTILE)], limit=(2.0, HOSTILE))
        + charts.stacked_area(
            HOSTILE, _minutes(2), [charts.Layer(HOSTILE, "dead", [1.0, 2.0, 3.0])], marks=[charts.Mark(NOW, HOSTILE)]
        )
        + charts.percentile_lines(HOSTILE, _minutes(2), [charts.Panel(HOSTILE, {HOSTILE: [1.0, 2.0, 3.0]})])
        + charts.attempt_line(
            HOSTILE, charts.Life(_at(-9), [charts.Attempt(1, _at(-9), _at(-8), NOW, "dead", HOSTILE)], NOW)
        )
    )


SAMPLES: dict[str, Callable[[], Markup]] = {
    name.removeprefix("draw_"): function for name, function in sorted(globals().items()) if name.startswith("draw_")
}


def lay_out(name: str) -> str:
    """One element per line, so that a difference can be read."""
    return str(SAMPLES[name]()).replace("><", ">\n<") + "\n"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for sample in SAMPLES:
        (GOLDEN / f"{sample}.html").write_text(lay_out(sample))
