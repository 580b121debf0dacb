"""Charts: pure functions from values to SVG text, with a description and a data table each.

The page that shows them has the patterns `p-failed`, `p-dead` and `p-move` and the icons in its hidden first SVG.
"""

from __future__ import annotations

from watchbill.dashboard.charts.attempts import Attempt, Life, attempt_line
from watchbill.dashboard.charts.drawing import swatch, swatch_of_state
from watchbill.dashboard.charts.graph import Node, dependency_graph
from watchbill.dashboard.charts.inline import heat_row, meter, share_bar, spark_bars, sparkline
from watchbill.dashboard.charts.lanes import Lane, Run, Window, count_short_runs, node_timeline
from watchbill.dashboard.charts.series import (
    Bar,
    Layer,
    Mark,
    Panel,
    Time,
    bars,
    explain_layers,
    percentile_lines,
    stacked_area,
)
from watchbill.dashboard.charts.slots import Square, explain_squares, slot_squares
from watchbill.dashboard.charts.steps import StepLane, step_lanes
from watchbill.dashboard.charts.tokens import TokenRange, explain_owners, owner_cell, token_map

__all__ = [
    "Attempt",
    "Bar",
    "Lane",
    "Layer",
    "Life",
    "Mark",
    "Node",
    "Panel",
    "Run",
    "Square",
    "StepLane",
    "Time",
    "TokenRange",
    "Window",
    "attempt_line",
    "bars",
    "count_short_runs",
    "dependency_graph",
    "explain_layers",
    "explain_owners",
    "explain_squares",
    "heat_row",
    "meter",
    "node_timeline",
    "owner_cell",
    "percentile_lines",
    "share_bar",
    "slot_squares",
    "spark_bars",
    "sparkline",
    "stacked_area",
    "step_lanes",
    "swatch",
    "swatch_of_state",
    "token_map",
]
