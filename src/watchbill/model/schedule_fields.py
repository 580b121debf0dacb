"""The catalogue of all options of a schedule: the kind of each, its values, and what the command line says about it.

Validation (`app/schedule_validation.py`) and the options of `watchbill schedules add` and `update` are made from this
catalogue. What must be written out for type checkers or in SQL (the TypedDicts of `app/schedule_definition.py`,
ScheduleRecord, the table) is compared with it by `tests/contract/test_fields.py`. So a new option is a line here, a
line where that test points to, and a migration.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from watchbill.model.schedule import Missed, Overlap

Kind = Literal[
    "text", "choice", "integer", "count", "duration", "instant", "flag", "texts", "object", "retry", "task"
]  # fmt: skip


class ScheduleField(NamedTuple):
    """One option of a schedule. `columns` names the columns that store it, if it is not one column of the same name."""

    name: str
    kind: Kind
    help: str = ""  # what the command line shows; a field without this text has no option there
    metavar: str | None = None
    flag: str | None = None  # the option of the command line, if it is not --name
    choices: tuple[str, ...] = ()
    least: float = 0.0  # the shortest duration that is allowed, in seconds
    columns: tuple[str, ...] | None = None


SCHEDULE_FIELDS = (
    ScheduleField("pattern", "text", "A cron pattern.", metavar="PATTERN"),
    ScheduleField("every", "duration", "Instead of a pattern: 30s, 5m, 1h30m.", least=1),
    ScheduleField("at", "instant", "Instead of a pattern: once, then."),
    ScheduleField("tz", "text", "The zone of the pattern: Europe/Paris.", metavar="ZONE"),
    ScheduleField("dst", "choice", "What happens when the clocks change.", choices=("default", "skip", "once", "both")),
    ScheduleField("task", "task", "The type of the task to run, such as tasks.hello.", metavar="TYPE",
                  columns=("type", "version")),
    ScheduleField("arguments", "object", "The task's arguments, as a JSON object.", columns=("payload",)),
    ScheduleField("command", "text", "Instead of a task: SQL to run.", metavar="SQL"),
    ScheduleField("role", "text", "Run the SQL as this role."),
    ScheduleField("queue", "text", "The queue of its jobs."),
    ScheduleField("priority", "integer", "Of its jobs; higher runs first."),
    ScheduleField("retry", "retry", "How often a job of it is tried.", flag="--max-attempts",
                  columns=("max_attempts", "retry")),
    ScheduleField("timeout", "duration", "How long a job of it may run.", least=0.001),
    ScheduleField("expires", "duration", "A job of it that has not started this long after its slot is canceled.",
                  least=0.001),
    ScheduleField("missed", "choice", "What happens to slots at which no scheduler ran.", choices=get_args(Missed)),
    ScheduleField("catch_up", "count", "How many missed slots catch_up runs at most."),
    ScheduleField("grace", "duration", "How late a slot may still run."),
    ScheduleField("overlap", "choice", "When the previous job has not ended.", choices=get_args(Overlap)),
    ScheduleField("jitter", "duration", "Start each job later, by a random time up to this."),
    ScheduleField("start", "instant", "No slot before."),
    ScheduleField("end", "instant", "No slot after."),
    ScheduleField("max_runs", "count", "End after this many jobs."),
    ScheduleField("deadline", "duration", "Overdue when not ended this long after a slot.", least=0.001),
    ScheduleField("run_on_start", "flag", "Also run when the cluster starts."),
    ScheduleField("enabled", "flag", "Whether it fires.", flag="--enabled/--disabled"),
    ScheduleField("description", "text", "For people."),
    ScheduleField("category", "text", "For lists."),
    ScheduleField("tags", "texts", "For lists; may be given again.", flag="--tag"),
    ScheduleField("context", "object", "Reaches the handler in its job's meta."),
    ScheduleField("created_by", "text"),
)  # fmt: skip

SCHEDULE_OPTIONS = {field.name: field for field in SCHEDULE_FIELDS}
SCHEDULE_COLUMNS = tuple(column for field in SCHEDULE_FIELDS for column in field.columns or (field.name,))
