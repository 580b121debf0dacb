"""The life of one job as a line: waits and runs to scale, long gaps folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from markupsafe import Markup

from watchbill.dashboard.charts.drawing import data_table, draw, fill, name_shape, picture, write
from watchbill.dashboard.charts.scales import seconds

_MOST_ATTEMPTS = 5  # the newest are drawn; the table has all
_FOLD = 13.0  # how wide a folded gap is, in percent
_HEAD, _TAIL, _EDGE = 0.4, 14.0, 1.0  # room for the first dot, for the words of the next attempt, for a last sign
_LEAST_RUN, _LEAST_WAIT = 11.0, 1.3
_LEAST_NAMED = 12.5  # the word "attempt" and the time have room above a run of this width


@dataclass(frozen=True)
class Attempt:
    """`ready` is when it could have begun: the time between is its wait."""

    number: int
    ready: datetime
    begin: datetime
    end: datetime | None
    outcome: str
    node: str | None = None


@dataclass(frozen=True)
class Life:
    enqueued: datetime
    attempts: Sequence[Attempt]
    now: datetime
    next_at: datetime | None = None
    zone: tzinfo = UTC


@dataclass(frozen=True)
class _Piece:
    kind: str  # wait, run, gap
    seconds: float
    attempt: Attempt | None = None


def attempt_line(title: str, life: Life) -> Markup:
    """The picture of one job, with the table of all its attempts."""
    attempts = life.attempts[-_MOST_ATTEMPTS:]
    left_out = len(life.attempts) - len(attempts)
    pieces = _cut(life, attempts, left_out)
    widths = _measure(pieces, 100 - _HEAD - (_TAIL if life.next_at else _EDGE))
    shapes: list[Markup] = [draw("circle", cls="dot muted", cx=".4%", cy=38, r=4)]
    x = _HEAD
    for piece, width in zip(pieces, widths, strict=True):
        shapes += _draw_piece(piece, x, width, life)
        x += width
    if life.next_at is not None:
        shapes += _draw_next(life, x + 1, len(life.attempts) + 1)
    shapes.append(write("enqueued" if not left_out else f"{left_out} attempts before", x=0, y=70))
    plot = picture(_say(title, life), *shapes, cls="plot", width="100%", height=80)
    rows = [
        (
            each.number,
            f"{each.begin.astimezone(life.zone):%H:%M:%S}",
            each.node or "-",
            each.outcome,
            seconds(max((each.begin - each.ready).total_seconds(), 0)),
            seconds(((each.end or life.now) - each.begin).total_seconds()),
        )
        for each in reversed(life.attempts)
    ]
    table = data_table(title, ["Attempt", "Began", "Node", "Outcome", "Waited", "Ran"], rows)
    return draw("div", draw("div", draw("div", plot), cls="pan", tabindex=0, role="region", aria_label=title), table)


def _cut(life: Life, attempts: Sequence[Attempt], left_out: int) -> list[_Piece]:
    pieces: list[_Piece] = []
    before = attempts[0].ready if attempts and left_out else life.enqueued
    if left_out:
        pieces.append(_Piece("gap", 0.0))
    for each in attempts:
        if each.ready > before:
            pieces.append(_Piece("gap", (each.ready - before).total_seconds()))
        pieces.append(_Piece("wait", max((each.begin - each.ready).total_seconds(), 0.0), each))
        end = each.end or life.now
        pieces.append(_Piece("run", max((end - each.begin).total_seconds(), 0.0), each))
        before = end
    if life.next_at is not None and life.next_at > before:
        pieces.append(_Piece("gap", (life.next_at - before).total_seconds()))
    elif not attempts:
        pieces.append(_Piece("wait", max((life.now - life.enqueued).total_seconds(), 0.0)))
    return pieces


def _measure(pieces: Sequence[_Piece], width: float) -> list[float]:
    """The widths in percent of the whole. Waits and runs share what the folded gaps leave."""
    folds = sum(piece.kind == "gap" for piece in pieces)
    room = max(width - folds * _FOLD, 30.0)
    least = [{"run": _LEAST_RUN, "wait": _LEAST_WAIT, "gap": _FOLD}[piece.kind] for piece in pieces]
    scaled = [piece.seconds if piece.kind != "gap" else 0.0 for piece in pieces]
    spare = max(room - sum(narrow for narrow, piece in zip(least, pieces, strict=True) if piece.kind != "gap"), 0.0)
    whole = sum(scaled) or 1.0
    longest = 0.5 * spare if len(pieces) > 2 else spare
    widths = [narrow + min(spare * part / whole, longest) for narrow, part in zip(least, scaled, strict=True)]
    excess = sum(widths) / width
    return [each / excess for each in widths] if excess > 1 else widths


def _draw_piece(piece: _Piece, x: float, width: float, life: Life) -> list[Markup]:
    if piece.kind == "gap":
        word = f"backoff {seconds(piece.seconds)}" if piece.seconds else "…"
        if x < 1 and piece.seconds:
            word = f"{seconds(piece.seconds)} until due"
        fold = draw("line", cls="fold", x1=_percent(x + 1.6), x2=_percent(x + width - 1), y1=38, y2=38)
        return [fold, write(word, cls="mid halo", x=_percent(x + width / 2), y=42)]
    if piece.kind == "wait":
        return [
            draw(
                "g",
                draw(
                    "rect",
                    name_shape(f"waited {seconds(piece.seconds)}"),
                    cls="calm",
                    x=_percent(x),
                    y=35,
                    width=_percent(width),
                    height=6,
                ),
                cls="queued",
            )
        ]
    attempt = piece.attempt
    assert attempt is not None
    end = _percent(x + width)
    bar = draw(
        "rect",
        name_shape(f"ran {seconds(piece.seconds)}"),
        **fill(attempt.outcome, quiet=attempt.outcome != "running"),
        x=_percent(x),
        y=26,
        width=_percent(width),
        height=24,
        rx=3,
    )
    where = f"{attempt.begin.astimezone(life.zone):%H:%M:%S}" + (f" on {attempt.node}" if attempt.node else "")
    shapes = [
        draw("g", bar, cls=attempt.outcome),
        write(f"attempt {attempt.number}" if width > _LEAST_NAMED else attempt.number, cls="bold", x=_percent(x), y=16),
        write(seconds(piece.seconds), cls="end", x=end, y=16),
        write(where, cls="end", x=end, y=70),
    ]
    if attempt.outcome in ("failed", "dead", "lost"):
        shapes.append(
            draw(
                "svg",
                draw("circle", cls="solid", r=7),
                draw("path", cls="knock", d="M-2.6-2.6l5.2 5.2m0-5.2l-5.2 5.2"),
                x=end,
                y=38,
                cls=attempt.outcome,
                overflow="visible",
            )
        )
    return shapes


def _draw_next(life: Life, x: float, number: int) -> list[Markup]:
    assert life.next_at is not None
    at = _percent(x)
    return [
        draw("g", draw("circle", cls="hollow", cx=at, cy=38, r=7), cls="failed" if life.attempts else "queued"),
        write(f"attempt {number}", cls="bold", x=at, dx=-6, y=16),
        write(f"{life.next_at.astimezone(life.zone):%H:%M:%S}", x=at, dx=14, y=42),
    ]


def _say(title: str, life: Life) -> str:
    said = [f"enqueued {life.enqueued.astimezone(life.zone):%H:%M:%S}"]
    for each in life.attempts[-_MOST_ATTEMPTS:]:
        ran = seconds(((each.end or life.now) - each.begin).total_seconds())
        said.append(f"attempt {each.number} ran {ran}" + (f" and {each.outcome}" if each.end else " and runs"))
    if life.next_at is not None:
        said.append(f"next attempt at {life.next_at.astimezone(life.zone):%H:%M:%S}")
    return f"{title}: {', '.join(said)}"


def _percent(value: float) -> str:
    return f"{value:.4g}%"
