"""The filter language: what is read, and what an error says. What filters find is tested in tests/store."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchbill.filters.condition import FilterError, write_conditions
from watchbill.filters.fields import FIELDS
from watchbill.filters.parser import parse_filter

NOW = datetime(2026, 3, 29, 12, 0, tzinfo=timezone(timedelta(hours=2)))
PAGE = Path(__file__).parents[2] / "docs/reference/filters.md"


def parsed(text: str) -> list[Any]:
    return [
        (each["field"], each["operator"], each["values"], *([each["path"]] if "path" in each else []))
        for each in json.loads(write_conditions(parse_filter(text, NOW)))
    ]


@pytest.mark.parametrize(("text", "conditions"), [
    ("", []),
    ("  state:failed\ttype:mail ", [("state", "=", ["failed"]), ("type", "=", ["mail"])]),
    ("type:a,b", [("type", "=", ["a", "b"])]),
    ("type:mail.*,50%", [("type", "like", ["mail.%", r"50\%"])]),
    ('type:"mail.*"', [("type", "=", ["mail.*"])]),
    (r'key:"say \"hi\", \\o/"', [("key", "=", [r'say "hi", \o/'])]),
    ('key:""', [("key", "=", [""])]),
    ("limit:key:crm", [("limit", "=", ["key:crm"])]),
    ("priority:5,-5 seq>=1.5", [("priority", "=", [5, -5]), ("seq", ">=", [1.5])]),
    ("run>1m30s wait<=500ms", [("run", ">", [90]), ("wait", "<=", [0.5])]),
    ("created>-1h due<+10m", [("created", ">", [-3600]), ("due", "<", [600])]),
    ("finished<2026-03-29T02:30+01:00", [("finished", "<", ["2026-03-29T01:30:00.000000+00:00"])]),
    ("payload.a.b:42", [("payload", "=", [{"a": {"b": "42"}}, {"a": {"b": 42}}], ["a", "b"])]),
    ('payload.a:"42"', [("payload", "=", [{"a": "42"}], ["a"])]),
    ("payload.a:true,null", [("payload", "=", [{"a": "true"}, {"a": True}, {"a": "null"}, {"a": None}], ["a"])]),
    ('payload."user id".b:x*', [("payload", "like", ["x%"], ["user id", "b"])]),
    ("meta.n>=10", [("meta", ">=", [10], ["n"])]),
    ("01a2c0de", [("id", "=", [["01a2c0de-0000-0000-0000-000000000000", "01a2c0de-ffff-ffff-ffff-ffffffffffff"]])]),
    ("deadbeef", [("type", "like", ["%deadbeef%"])]),
    ("a_b *.send", [("type", "like", [r"%a\_b%"]), ("type", "like", ["%.send"])]),
    ("error:a,b*", [("error", "has", ["a", "b*"])]),
])  # fmt: skip
def test_filter_is_read(text: str, conditions: list[Any]) -> None:
    assert parsed(text) == conditions


def test_minus_negates_a_term_and_nothing_else() -> None:
    first, second, third = parse_filter("-queue:bulk priority:-1 -mail")
    assert (first.is_negated, second.is_negated, third.is_negated) == (True, False, True)
    assert second.values == (-1,)


def test_time_of_day_is_today_in_the_local_time_zone() -> None:
    ((_, _, (instant,)),) = parsed("due<9:30")
    local = datetime.fromisoformat(instant).astimezone()
    assert (local.date(), local.hour, local.minute) == (NOW.date(), 9, 30)


@pytest.mark.parametrize(("text", "column", "problem", "hint"), [
    ("state:faild", 7, "no state 'faild'", "failed"),
    ("state:failed,ded", 14, "no state 'ded'", "dead"),
    ("waits:running", 7, "no wait 'running'", "limited"),
    ("type:a stat:failed", 8, "no field 'stat'", "Did you mean state?"),
    ("-xyzzy:1", 2, "no field 'xyzzy'", "The fields are state,"),
    ("type>a", 5, "type cannot be compared with >", "Write type:mail.*."),
    ("created:14:00", 8, "created needs <, <=, > or >=", "Write created>-1h."),
    ("created>1h", 9, "'1h' is not a time", "-1h"),
    ("created>2026-02-30", 9, "'2026-02-30' is not a time", "2026-03-29"),
    ("created>-1h,-2h", 13, "created> takes one value", "one value"),
    ("run:5s", 4, "run needs", "Write run>5s."),
    ("run>soon", 5, "'soon' is not a duration", "1h30m"),
    ("run>-5s", 5, "not a duration", "30s"),
    ("due<+9999999999999h", 5, "too long", "300 years"),
    ("priority:high", 10, "'high' is not a number", "Write a number"),
    ("priority>1e400", 10, "not a number", "number"),
    ("id:xyz", 4, "not the beginning of an id", "Copy it"),
    ("payload:5", 8, "payload needs a path", "payload.user.id:42"),
    ("payload..a:5", 9, "a name is missing", "payload.user.id:42"),
    ("payload.a", 10, "payload needs an operator", "payload.user.id:42"),
    ("payload.a>x", 11, "not a number", "number"),
    ("type: mail", 6, "type needs a value", "type:mail.*"),
    ("type:a,", 8, "type needs a value", "type:mail.*"),
    ("a,b", 2, "separated by commas", "type:mail,sms"),
    ('key:"a', 5, "a quote is not closed", "around the text"),
    ('key:"a"b', 8, "a space is missing", "Quote"),
    ("key:a\x00b", 6, "cannot be shown", "Remove it"),
    ("- x", 2, "needs a value", "Write a value"),
    ("type:" + "a," * 100 + "a", 206, "too many values", "at most 100"),
    ("a " * 21, 41, "too many terms", "at most 20"),
    ("a" * 1001, 1001, "1,001 characters", "at most 1,000"),
])  # fmt: skip
def test_error_names_the_column_and_what_would_be_right(text: str, column: int, problem: str, hint: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text, NOW)
    assert caught.value.column == column
    assert f"at column {column}: " in caught.value.message
    assert problem in caught.value.message
    assert hint in str(caught.value.hint)


def test_error_points_at_the_column() -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter("type:a state:faild")
    assert str(caught.value.hint).splitlines()[:2] == ["  type:a state:faild", "               ^".rjust(16)]


@given(
    st.text(max_size=60) | st.lists(st.sampled_from([*'ab:,*"\\-<>=. 1', "payload", "type", "run", "due"])).map("".join)
)
def test_every_text_is_read_or_refused(text: str) -> None:
    column = None
    try:
        conditions = parse_filter(text)
    except FilterError as error:
        column = error.column
    if column is None:
        assert all(each.values for each in conditions)
        assert json.loads(write_conditions(conditions)) is not None
    else:
        assert 1 <= column <= len(text) + 1


def test_page_lists_every_field() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| `(.*)` \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(name, field.meaning, field.example) for name, field in FIELDS.items()]
    for _, _, example in rows:
        assert parse_filter(example)
