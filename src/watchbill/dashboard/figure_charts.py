"""Charts and causes that several pages show of a queue, a type, a tenant or of all: what ended, how long it took, and
why jobs do not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from markupsafe import Markup

from watchbill.client import key_operations
from watchbill.client.key_operations import ChartMark
from watchbill.dashboard import charts
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.figures import Ending, Window, read_endings
from watchbill.model.job import CauseCount
from watchbill.redaction import Redaction

LEGEND = Markup("").join(charts.swatch_of_state(state, state) for state in ("succeeded", "failed", "dead"))
_MOST_WORDS = 40  # letters of a mark
_TEN_MINUTES = 600
# How each cause of why_jobs() looks: a state, or what a job waits for. Others look as queued.
_KINDS = {
    "paused": "paused", "type_paused": "paused", "limited": "limited", "ordered": "limited", "delayed": "scheduled",
    "retrying": "retrying", "blocked": "blocked", "suspended": "suspended", "running": "running", "stuck": "dead",
    "unsupported": "unsupported", "unmatched": "unmatched", "no_match": "unmatched", "unserved": "late",
    "no_node": "late", "unowned": "late", "late": "late", "finished": "succeeded",
}  # fmt: skip
# The colours of a bar are those of states.
_COLORS = {"limited": "paused", "scheduled": "queued", "retrying": "failed", "suspended": "queued",
           "unsupported": "paused", "unmatched": "paused", "late": "failed"}  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """What ended in a window, with its charts; `None` where nothing did."""

    window: Window
    endings: Sequence[Ending]
    ended: Markup | None
    times: Markup | None


async def read_figures(
    transaction: Transaction, window: Window, now: datetime, zone: tzinfo, dimension: str, name: str
) -> Figures:
    if dimension in ("type", "tenant"):  # whose figures are of ten minutes
        window = window._replace(step=-(-window.step // _TEN_MINUTES) * _TEN_MINUTES)
    endings = await read_endings(transaction, window, now, dimension, name)
    marks = await transaction.run(key_operations.chart_marks(endings[0].at)) if endings else []
    shown = list_marks(marks, endings)
    return Figures(window, endings, draw_endings(window, endings, shown, zone), _draw_times(endings, shown, zone))


def list_marks(marks: Sequence[ChartMark], endings: Sequence[Ending]) -> list[charts.Mark]:
    return [charts.Mark(mark.at, mark.text[:_MOST_WORDS]) for mark in marks if endings and mark.at >= endings[0].at]


def draw_endings(
    window: Window, endings: Sequence[Ending], marks: Sequence[charts.Mark], zone: tzinfo
) -> Markup | None:  # fmt: skip
    """How many jobs ended, by how they ended, with deploys."""
    if not any(each.ended or each.dead or each.canceled for each in endings):
        return None
    layers = [
        charts.Layer(state, state, [getattr(each, state) for each in endings])
        for state in ("succeeded", "failed", "dead")
    ]
    time = charts.Time([each.at for each in endings], zone)
    return charts.stacked_area(f"Ended per {window.unit}", time, layers, marks=marks, height=160)


def _draw_times(endings: Sequence[Ending], marks: Sequence[charts.Mark], zone: tzinfo) -> Markup | None:
    """How long jobs waited and ran, on average."""
    if not any(each.ended for each in endings):
        return None
    panels = [
        charts.Panel("wait: from due to start", {"avg": [each.mean_wait for each in endings]}),
        charts.Panel("run: from start to end", {"avg": [each.mean_run for each in endings]}),
    ]
    return charts.percentile_lines("Wait and run time", charts.Time([each.at for each in endings], zone), panels,
                                   marks=marks, height=160)  # fmt: skip


# -- Causes


@dataclass(frozen=True)
class Causes:
    """Why jobs do not run, the most frequent cause first."""

    causes: Sequence[CauseCount]
    bar: Markup

    @property
    def jobs(self) -> int:
        return sum(each.jobs for each in self.causes)

    @property
    def is_estimate(self) -> bool:
        return any(each.is_estimate for each in self.causes)

    @staticmethod
    def kind(cause: str) -> str:
        """The word of `ui.state` for a cause."""
        return _KINDS.get(cause, "queued")


def show_causes(found: Sequence[CauseCount], redaction: Redaction) -> Causes | None:
    if not found:
        return None
    hidden = [replace(each, reason=_begin_sentence(redaction.hide_text(each.reason))) for each in found]
    shares = [(each.cause.replace("_", " "), _find_color(each.cause), float(each.jobs)) for each in hidden]
    return Causes(hidden, charts.share_bar("What the jobs wait for", shares))


def _find_color(cause: str) -> str:
    kind = Causes.kind(cause)
    return _COLORS.get(kind, kind)


def _begin_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
