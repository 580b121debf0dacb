"""examples/nightly_etl: a night loads each region once, and goes on after a file was mended."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from tests.examples.commands import Example

STATES = "SELECT type, state FROM watchbill.job WHERE type LIKE 'etl.%' ORDER BY type, seq"


def test_a_night_is_loaded_and_continues_after_a_mended_file(schema_database: str, tmp_path: Path) -> None:
    etl = Example("nightly_etl", schema_database, tmp_path)
    north = etl.directory / "sales" / "north.csv"
    good = north.read_text()
    north.write_text(good.replace("99.00", "-99.00"))
    etl.work_off("etl")  # declares the schedule
    assert "02:30:00" in etl.watchbill("schedules", "preview", "nightly")
    etl.watchbill("schedules", "run", "nightly")
    said = etl.work_off("etl")
    assert "The night has failed" in said
    assert etl.sql(STATES) == [
        ("etl.check", "canceled"), ("etl.extract", "dead"), ("etl.extract", "succeeded"), ("etl.load", "canceled"),
        ("etl.tell_somebody", "succeeded"),
    ]  # fmt: skip
    north.write_text(good)
    ((dead,),) = etl.sql("SELECT id FROM watchbill.job WHERE state = 'dead' AND type = 'etl.extract'")
    etl.watchbill("jobs", "retry", str(dead))
    etl.work_off("etl")
    assert ("etl.check", "succeeded") in etl.sql(STATES)
    assert etl.sql("SELECT result FROM watchbill.finished_jobs WHERE type = 'etl.check'") == [
        ("4 days, 401.50 in all",)
    ]
    assert "etl.load" in etl.watchbill("jobs", "tree", str(dead))
    etl.watchbill("schedules", "run", "nightly")
    etl.work_off("etl")
    assert etl.sql("SELECT count(*), sum(amount) FROM sales") == [(4, Decimal("401.50"))]
