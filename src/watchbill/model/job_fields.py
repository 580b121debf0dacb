"""The catalogue of all fields that a producer can give a job: the kind of each, and what it means.

The checks of options, the JSON and COPY forms of a job and the options of `watchbill jobs enqueue` are made from this
catalogue. What must be written out for type checkers or in SQL (NewJob, JobOptions, JobOptionsDict, the type new_job,
the function enqueue) is compared with it by `tests/contract/test_fields.py`. So a new field is a line here, a line
where that test points to, and a migration.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal[
    "id", "text", "integer", "instant", "duration", "json", "retry", "flag", "parents", "run_if", "connection",
    "format", "formats", "labels", "unique", "expiry", "webhook",
]  # fmt: skip


class JobField(NamedTuple):
    """One field of a job. `option`: callers may give the field, as in `task.using(queue="mail")`. `column`: the field
    is stored with the job."""

    name: str
    kind: Kind
    meaning: str = ""  # what the option does, for the reference and the command line
    option: bool = True
    column: bool = True
    flag: str | None = None  # the option of `watchbill jobs enqueue` that sets this field


JOB_FIELDS = (
    JobField("id", "id", "A UUID for the job. Default: a new UUIDv7."),
    JobField("type", "text", option=False),
    JobField("payload", "json", option=False),
    JobField("queue", "text", "The queue in which the job waits. Default: the task's, or `default`.", flag="--queue"),
    JobField("priority", "integer", "-32768 to 32767; a higher number runs first. Default: 0.", flag="--priority"),
    JobField("run_at", "instant", "Do not run before this aware datetime. Give this or `delay`, not both.",
             flag="--run-at"),
    JobField("delay", "duration", "Run after this duration, on the database's clock.",
             flag="--delay"),
    JobField("tenant", "text", "The tenant that the job belongs to. Default: `default`.", flag="--tenant"),
    JobField("max_attempts", "integer", option=False, flag="--max-attempts"),
    JobField("retry", "retry", "A number of attempts, or a `Retry`. Default: the task's, or `Retry()`."),
    JobField("timeout", "duration", "How long each attempt may take. Default: the task's, or none.",
             flag="--timeout"),
    JobField("version", "integer", option=False),
    JobField("idempotency_key", "text", "If the tenant has a job of this type and key, that job is returned and no "
             "second one is made.", flag="--key"),
    JobField("idempotency_window", "duration", "How long the key is valid. Default: as long as the first job is kept."),
    JobField("created_by", "text", option=False),
    JobField("meta", "json", option=False),
    JobField("depends_on", "parents", "Jobs that must end first: jobs, calls of the same `enqueue_many`, ids, or a "
             "list of them.", flag="--depends-on"),
    JobField("run_if", "run_if", "Run if the jobs in `depends_on` are `all_succeeded` (default), `all_finished` or "
             "`any_failed`."),
    JobField("limit_keys", "formats", "Keys of declared limits, such as `crm-api` or `account:{account}`.",
             flag="--limit-key"),
    JobField("ordered_by", "format", "Jobs of the task with the same key run one at a time, in the order of enqueue: a "
             "format such as `{order_id}`.", flag="--ordered-by"),
    JobField("route_by", "format", "The key whose owner among the nodes runs the job: a format such as `{account}`.",
             flag="--route-by"),
    JobField("token_group", "text", option=False),
    JobField("group", "text", "The token group whose members own the keys of `route_by`. The job is refused if the "
             "queue has another group.", column=False),
    JobField("runs_on", "labels", "Only nodes that have these labels run the job.", flag="--runs-on"),
    JobField("unique_by", "format", option=False, flag="--unique-by"),
    JobField("unique_until", "text", option=False, flag="--unique-until"),
    JobField("on_duplicate", "text", option=False, flag="--on-duplicate"),
    JobField("debounce_wait", "duration", option=False),
    JobField("debounce_max", "duration", option=False),
    JobField("expires_at", "instant", option=False),
    JobField("expires_in", "duration", option=False),
    JobField("results", "labels", option=False),
    JobField("expires", "expiry", "The job ends as canceled if it has not started after this duration, or at this "
             "aware datetime.", column=False, flag="--expires"),
    JobField("unique", "unique", "A `Unique` or `Debounce`: what happens if a job with the same key waits or runs.",
             column=False),
    JobField("notify", "webhook", "A `Webhook` of `watchbill.connectors`: a webhook is sent when the job has ended.",
             column=False),
    JobField("strict", "flag", "Raise an error, not a warning, if the key was used with another payload. In "
             "`enqueue_many`: for all.", column=False),
    JobField("cell", "text", "The cell that gets the job, if the App has several.", column=False),
    JobField("connection", "connection", "Your own connection or session: the job commits and rolls back with your "
             "transaction.", column=False),
)  # fmt: skip

JOB_OPTIONS = {field.name: field for field in JOB_FIELDS if field.option}
JOB_COLUMNS = tuple(field for field in JOB_FIELDS if field.column)  # in the order of NewJob and of SQL's new_job
