"""docs/reference/schedules.md names every option, method and field, and none that is not there."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from watchbill import ScheduleFilter, ScheduleRecord, SlotRecord
from watchbill.app.schedule_definition import Changes
from watchbill.app.schedules import Schedules

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "schedules.md").read_text()
_SECTION = re.compile(r"^#+ (.*?)\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = {title.strip("`"): text for title, text in _SECTION.findall(PAGE)}


def first_column(section: str) -> set[str]:
    rows = re.findall(r"^\| (.*?) \|", SECTIONS[section], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)", row)}


def test_every_option_is_described() -> None:
    assert first_column("Options") == set(Changes.__annotations__)


def test_every_call_is_described() -> None:
    sync = {name for name in vars(Schedules) if not name.startswith("_") and f"a{name}" in vars(Schedules)}
    assert first_column("app.schedules") == sync


@pytest.mark.parametrize(("section", "record"), [("ScheduleRecord", ScheduleRecord), ("SlotRecord", SlotRecord)])
def test_every_field_is_described(section: str, record: type) -> None:
    fields = {field.name for field in dataclasses.fields(record)}
    as_stored = {"type", "payload", "max_attempts"} if record is ScheduleRecord else set()
    options = first_column("Options") - {"task", "arguments"} if record is ScheduleRecord else set()
    assert first_column(section) | as_stored | options == fields


def test_every_filter_is_described() -> None:
    missing = [f.name for f in dataclasses.fields(ScheduleFilter) if f"`{f.name}`" not in SECTIONS["app.schedules"]]
    assert missing == []
