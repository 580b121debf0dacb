"""The keys of `watchbill top`, and how its lists share the lines of a terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from watchbill.cli.keyboard import name_keys
from watchbill.cli.top_screen import View, share_rows
from watchbill.cli.top_snapshot import Snapshot, describe_queue
from watchbill.model.figures import OUTCOMES, FailureGroup, Figure, QueueFigures
from watchbill.model.job import NodeRecord

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def queue(name: str, **fields: Any) -> QueueFigures:
    usual: dict[str, Any] = dict.fromkeys(QueueFigures.__slots__)
    usual |= {"queue": name, "trend": [], "nodes": 1, "draining_nodes": 0}
    return QueueFigures(**usual | fields)


def node(name: str, epoch: int) -> NodeRecord:
    usual: dict[str, Any] = dict.fromkeys(NodeRecord.__slots__)
    return NodeRecord(**usual | {"name": name, "epoch": epoch, "leads": [], "labels": {}, "state": "active"})


FAILURE = FailureGroup(7, "default", "mail.send", "OSError", "refused", UUID(int=1), NOW, NOW, 3, 1)
SHOWN = Snapshot(
    NOW, None, None, None,
    [queue("mail", ready=5, oldest=NOW), queue("reports", ready=9, running=2, oldest=NOW - timedelta(hours=1)),
     queue("idle")],
    [node("a", 1), node("b", 2)], [FAILURE],
)  # fmt: skip


def press(view: View, keys: str | list[str]) -> View:
    for key in keys:
        view.press(key, SHOWN)
    return view


def names(view: View) -> list[str]:
    return [each.queue for each in view.find(SHOWN, "queues")]


def test_s_sorts_by_the_next_column() -> None:
    view = View()
    assert names(view) == ["reports", "mail", "idle"]
    assert names(press(view, "sss")) == ["idle", "mail", "reports"]  # nothing runs in any of them
    assert names(press(view, "ss")) == ["idle", "mail", "reports"]
    assert names(press(view, "sss")) == ["reports", "mail", "idle"]


def test_slash_keeps_names_that_contain_the_words_and_escape_gives_all_back() -> None:
    view = press(View(), ["/", "q", "x", "backspace", "backspace", "M", "a", "enter"])
    assert (names(view), view.is_over) == (["mail"], False)
    assert view.find(SHOWN, "failures") == [FAILURE]
    assert view.find(SHOWN, "nodes") == []
    assert len(names(press(view, ["escape"]))) == 3


def test_enter_opens_the_selected_row_and_the_row_follows_its_record() -> None:
    view = press(View(), ["down", "enter"])
    assert view.details == "mail"
    assert view.find_details(SHOWN) is SHOWN.queues[0]
    press(view, ["escape", "tab", "down", "down", "down", "enter"])
    assert view.find_details(SHOWN) is SHOWN.nodes[1]
    press(view, ["enter", "tab", "enter"])
    assert view.find_details(SHOWN) is FAILURE
    empty = Snapshot(NOW, None, None, None, [], [], [])
    assert view.find_details(empty) is None


def test_enter_in_an_empty_list_opens_nothing() -> None:
    view = View()
    view.press("enter", Snapshot(NOW, None, None, None, [], [], []))
    assert view.details is None


def test_p_holds_the_screen_and_q_ends_it() -> None:
    view = press(View(), "p")
    assert (view.is_held, press(view, "p").is_held, press(view, "q").is_over) == (True, False, True)


def test_lists_share_the_lines() -> None:
    assert share_rows({"queues": 2, "nodes": 1, "failures": 0}, 40) == {"queues": 2, "nodes": 1, "failures": 0}
    shared = share_rows({"queues": 90, "nodes": 90, "failures": 90}, 46)
    assert shared == {"queues": 20, "nodes": 10, "failures": 10}
    assert share_rows({"queues": 90, "nodes": 1, "failures": 0}, 46) == {"queues": 39, "nodes": 1, "failures": 0}
    assert min(share_rows({"queues": 9, "nodes": 9, "failures": 9}, 3).values()) >= 0


def test_rates_count_from_the_first_minute_that_was_reported() -> None:
    zero: dict[str, Any] = dict.fromkeys((*OUTCOMES, "run_seconds", "wait_seconds"), 0)
    lately = Figure(**zero | {"at": NOW - timedelta(seconds=100), "name": "", "is_counted": False, "succeeded": 300})
    shown = Snapshot(NOW, None, lately, lately, [], [], [])
    assert (shown.per_second, shown.compute_rate(50), shown.compute_rate(None)) == (3.0, 0.5, 0.0)
    assert Snapshot(NOW, None, None, None, [], [], []).per_second == 0


def test_keys_have_names_and_unknown_sequences_are_left_out() -> None:
    assert name_keys("s\x1b[A\x1b[5~\x1bOB\t\r\x7f\x1b[24~ü\x00") == [
        "s", "up", "page up", "down", "tab", "enter", "backspace", "ü",
    ]  # fmt: skip
    assert name_keys("\x1b") == ["escape"]


def test_what_is_unusual_about_a_queue() -> None:
    paused = queue("mail", ready=1, paused_at=NOW, paused_by="eva", pause_reason="bank holiday", nodes=0)
    assert describe_queue(paused) == "paused by eva: bank holiday, no node serves it"
    assert (
        describe_queue(queue("mail", running=4, max=4, limited=7, paused=1))
        == "limit of 4 reached, 1 paused, 7 limited"
    )
    assert describe_queue(queue("mail", nodes=2, draining_nodes=2)) == "its nodes drain"
    assert describe_queue(queue("mail", ready=3)) == ""
