"""`watchbill stats`: the numbers of `watchbill queues`, and those of all schedules."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from watchbill.cli.jobs import AsJson
from watchbill.cli.output import command_group, counted, print_json
from watchbill.cli.queues import count_queues, print_queues

if TYPE_CHECKING:
    from watchbill.model.schedule import ScheduleStats

app = command_group()


@app.command()
def stats(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Count jobs by queue and state, and schedules."""
    from watchbill.client import plans_schedules as plans

    counts, pauses = count_queues(ctx)
    schedules = ctx.obj.run(plans.stats())
    if as_json:
        found = {"counts": [asdict(c) for c in counts], "pauses": [asdict(p) for p in pauses]}
        print_json(found | {"schedules": asdict(schedules)})
        return
    print_queues(counts, pauses)
    typer.echo(_line(schedules))


def _line(found: ScheduleStats) -> str:
    said = counted(found.schedules, "schedule") + ("+" if found.capped else "")
    for number, what in ((found.due, "due"), (found.late, "late"), (found.orphaned, "orphaned")):
        said += f", {number:,} {what}" if number else ""
    said += f", {counted(found.overdue, 'run')} overdue" if found.overdue else ""
    return said + (f"; next at {found.next_run:%Y-%m-%d %H:%M:%S %Z}" if found.next_run else "")
