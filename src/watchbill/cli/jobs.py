"""`watchbill jobs`: enqueue, list and show jobs, and change one of them or all that match a filter."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from watchbill.app.application import App
from watchbill.app.job import Job, JobCanceled, JobFailed
from watchbill.cli.arguments import (
    AfterJob,
    JobId,
    OneJob,
    OnlyQueue,
    OnlyTenant,
    OnlyType,
    RunAt,
    StateNames,
    act_for_tenant,
    complete_job,
    complete_queue,
    complete_type,
    find_job,
    read_instant,
    read_states,
)
from watchbill.cli.bulk import DryRun, Rate, Yes, change_all
from watchbill.cli.discovery import find_app_or_none
from watchbill.cli.filters import GivenWhere, Where, list_matches, read_where
from watchbill.cli.help import command_group
from watchbill.cli.job_logs import print_logs
from watchbill.cli.known_names import check_names
from watchbill.cli.output import (
    AsJson,
    GlobalOptions,
    Usage,
    format_elapsed,
    format_local_time,
    print_facts,
    print_json,
    print_records,
    print_table,
    show_json,
)
from watchbill.cli.reasons import find_number_before, is_over, needs_action, print_reasons
from watchbill.cli.screen import STATE_COLOURS, Painted, paint, say
from watchbill.cli.table import LongName, Wrapped
from watchbill.cli.tree import draw_tree
from watchbill.cli.watch import look_at, watch_job, watch_matches
from watchbill.client import job_operations
from watchbill.model.job import JobFilter, JobReason, JobRecord
from watchbill.model.states import FINISHED
from watchbill.model.steps import StepRecord
from watchbill.model.unique import Unique
from watchbill.telemetry.printable import printable_lines

app = command_group("Enqueue, list, show and change jobs. Without a command: list.")

# What `show` does not print, because nearly every job has it.
_USUAL = [("priority", 0), ("version", 1), ("lost", 0), ("canceling", False)]
_WATCH_SECONDS = 1.0
_NO_JOBS = "There are no jobs. To enqueue one: watchbill jobs enqueue TYPE"


@app.command()
def enqueue(
    ctx: typer.Context,
    type: Annotated[str, typer.Argument(help="The task's type, such as tasks.hello.", autocompletion=complete_type)],
    payload: Annotated[str, typer.Argument(help="A JSON object, one key per parameter.")] = "{}",
    queue: Annotated[str | None, typer.Option(help="The queue.", autocompletion=complete_queue)] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    delay: Annotated[str | None, typer.Option(metavar="DURATION", help="From now: 90, 30s, 5m, 1h30m.")] = None,
    run_at: RunAt = None,
    key: Annotated[str | None, typer.Option(help="An idempotency key.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant.", callback=act_for_tenant)] = None,
    max_attempts: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="How often it is tried; 1 is at most once.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="How long a run may take.")] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION|TIME", help="Cancel it if it has not started by then: 10m, 2030-01-01T09:00Z."),
    ] = None,
    depends_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="A job that must succeed first; may be given again.", autocompletion=complete_job
        ),
    ] = None,
    limit_key: Annotated[
        list[str] | None, typer.Option(metavar="FORMAT", help="A key of a limit: crm-api, account:{account}.")
    ] = None,
    ordered_by: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="The key whose jobs run in order: {order_id}.")
    ] = None,
    route_by: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="The key whose owner runs the job: {account}.")
    ] = None,
    runs_on: Annotated[
        str | None, typer.Option(metavar="JSON", help="Labels that the node must have, as a JSON object.")
    ] = None,
    unique_by: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Make no second job with this key: {account}.")
    ] = None,
    unique_until: Annotated[
        str | None, typer.Option(metavar="started|finished|DURATION", help="How long the job has its unique key.")
    ] = None,
    on_duplicate: Annotated[
        str | None, typer.Option(metavar="keep|replace|reject", help="What to do if a job has the unique key.")
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Also if no live node knows the type or the queue.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exits with 1 if it did not succeed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue a job by its type. If the App is found here, its task checks the payload and adds its own options."""
    given: dict[str, Any] = {
        "queue": queue, "priority": priority, "delay": delay, "idempotency_key": key, "tenant": tenant,
        "retry": max_attempts, "timeout": timeout, "expires": None if expires is None else _read_expiry(expires),
        "depends_on": [find_job(ctx.obj, each) for each in depends_on or ()] or None,
        "limit_keys": limit_key or None, "ordered_by": ordered_by, "route_by": route_by,
        "runs_on": None if runs_on is None else read_json_object(runs_on),
        "unique": _read_unique(unique_by, unique_until, on_duplicate),
    }  # fmt: skip
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if run_at is not None:
        chosen["run_at"] = read_instant(run_at)
    arguments = read_json_object(payload)
    producer, reference = find_producer(ctx.obj, type)
    try:
        if type in producer.tasks:
            producer.tasks[type].check(arguments)
        with producer.client.connection():  # a person does not wait for a server that does not answer
            pass
        if not unchecked:
            check_names(producer, reference, type, queue or find_queue(producer, type))
        job = producer.enqueue(type, arguments, **chosen)
        answer = {"id": job.id, "created": job.created, "payload_differs": job.payload_differs}
        if not as_json:
            say(f"{job.id}" + ("" if job.created else "  (exists already)"))
        ended = _wait_for_end(job) if wait else None
    finally:
        producer.close()
    if as_json:
        print_json(answer | (_pick_fields(ended, "state", "result", "error") if ended else {}))
    elif ended:
        _print_outcome(ended)
    raise typer.Exit(0 if ended is None or ended.state == "succeeded" else 1)


def _read_expiry(given: str) -> str | datetime | None:
    """Reads a duration or an instant."""
    return read_instant(given) if re.match(r"\d{4}-", given) else given


def _read_unique(by: str | None, until: str | None, on_duplicate: str | None) -> Unique | None:
    given = {"by": by, "until": until, "on_duplicate": on_duplicate}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        return Unique(**chosen) if chosen else None
    except ValueError as error:
        raise Usage(str(error)) from None


def find_producer(options: GlobalOptions, type: str) -> tuple[App, str | None]:
    """Returns the App in this directory, so that its checks, options and middleware apply. If there is none, makes an
    App without tasks."""
    found = find_app_or_none(options.load_settings().app, type)
    if found is None:
        return App(options.find_address(options.load_settings()).url, schema=options.schema), None
    app, reference = found
    settings = options.load_settings(app)
    app.use(replace(settings, database_url=options.find_address(settings).url))
    app.handlers()  # imports the modules that declare tasks, because only then the App knows its tasks
    return app, reference


def find_queue(app: App, type: str) -> str:
    return app.tasks[type].queue if type in app.tasks else "default"


def _wait_for_end(job: Job[Any]) -> JobRecord:
    with contextlib.suppress(JobFailed, JobCanceled):
        job.result()
    return job.get()


def _pick_fields(record: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _print_outcome(ended: JobRecord) -> None:
    what = show_error(ended.error) if ended.error else show_json(ended.result)
    say(paint(ended.state, STATE_COLOURS.get(ended.state)), "  ", what)


@app.command("list", reads=True, over_cells="joined")
def list_(
    ctx: typer.Context,
    state: StateNames = None,
    type: OnlyType = None,
    queue: OnlyQueue = None,
    tenant: OnlyTenant = None,
    after: AfterJob = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: AsJson = False,
    where: Where = None,
) -> None:
    """List jobs, newest first."""
    options: GlobalOptions = ctx.obj
    found_after = None if after is None else find_job(options, after)
    if where is not None:
        conditions = read_where(where, state=read_states(state), type=type, queue=queue, tenant=tenant)
        list_matches(options, conditions, after=found_after, limit=limit, as_json=as_json)
        return
    wanted = JobFilter(state=read_states(state), type=type, queue=queue, tenant=tenant, after=found_after, limit=limit)
    found = options.run(job_operations.find(wanted))
    empty = _NO_JOBS if wanted == JobFilter(limit=limit) else "No job matches."
    short = {} if as_json else options.shorten_ids([job.id for job in found])
    print_records(
        found,
        ("id", "state", "attempt", LongName("type"), LongName("queue"), "run at", Wrapped("error")),
        lambda j: (
            short[j.id],
            j.waits or j.state,
            _show_attempt(j),
            j.type,
            j.queue,
            j.run_at,
            show_error(j.error),
        ),
        as_json=as_json,
        empty=empty if found else options.explain_empty(empty),
    )


@app.command(reads=True)
def show(ctx: typer.Context, id: JobId, as_json: AsJson = False) -> None:
    """Show a job with every attempt and its direct dependencies."""
    job = ctx.obj.run(job_operations.get(find_job(ctx.obj, id)))
    if job.state == "running":
        with ctx.obj.open_client() as client:
            look_at(client, job.id)
    attempts, near = ctx.obj.run(job_operations.attempts(job.id)), ctx.obj.run(job_operations.adjacent(job.id))
    if as_json:
        lists = {"attempts": [asdict(attempt) for attempt in attempts], "dependencies": [asdict(each) for each in near]}
        print_json(asdict(job) | {"schedule": job.schedule} | lists)
        return
    first = {"id": job.id, "state": _describe_state(job), "waited": _show_wait(job), "ran": _show_run(job)}
    facts = first | asdict(job) | first | {"schedule": job.schedule, "attempt": _show_attempt(job)}
    for name in ("seq", "max_attempts", "wait", "waits", "schedule_id", "updated_at"):  # shown otherwise, or of no use
        del facts[name]
    facts["error"] = _format_error(job.error) if job.error else None
    shown = {name: value for name, value in facts.items() if value is not None and (name, value) not in _USUAL}
    print_facts({name: _format_value(value) for name, value in shown.items()})
    if attempts:
        say("")
        print_table(
            ("run", "attempt", "outcome", "started", "ended", LongName("node"), Wrapped("error")),
            [(a.run, a.attempt, a.outcome, a.started_at, a.ended_at, a.holder, show_error(a.error)) for a in attempts],
        )
    if near:
        say("")
        short = ctx.obj.shorten_ids([each.id for each in near])
        print_table(
            ("", "job", LongName("type"), "state", "if"),
            [(each.relation, short[each.id], each.type, each.state, each.run_if.replace("_", " ")) for each in near],
        )


@app.command()
def logs(
    ctx: typer.Context,
    id: JobId,
    run: Annotated[int | None, typer.Option(min=1, help="Only this run.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print progress and new lines each second, until the job has ended.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the last log lines of a job's runs: of those that have failed, or as the setting job_logs says."""
    job = find_job(ctx.obj, id)
    try:
        print_logs(ctx.obj, job, run=run, follow=follow, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command(reads=True)
def steps(ctx: typer.Context, id: JobId, as_json: AsJson = False) -> None:
    """List the steps that a job has stored, and those in which it waits."""
    job = find_job(ctx.obj, id)
    print_records(
        ctx.obj.run(job_operations.steps(job)),
        (LongName("step"), "state", "run", "ended", Wrapped("result")),
        lambda s: (s.name, s.state, s.run, s.ended_at or s.wake_at, _show_step_end(s)),
        as_json=as_json,
        empty="The job has stored no steps.",
    )


def _show_step_end(step: StepRecord) -> str:
    if step.error:
        return show_error(step.error)
    if step.state == "waiting" and step.signals:
        until = f" until {format_local_time(step.wake_at)}" if step.wake_at else ""
        return f"waits for the signal {' or '.join(step.signals)}{until}"
    if step.result is None:
        return f"waits until {format_local_time(step.wake_at)}" if step.state == "waiting" and step.wake_at else ""
    return show_json(step.result)


@app.command(reads=True)
def waiting(
    ctx: typer.Context,
    signal: Annotated[str | None, typer.Option(metavar="NAME", help="Only those that wait for this signal.")] = None,
    tenant: OnlyTenant = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the steps in which suspended jobs wait, the oldest first."""
    options: GlobalOptions = ctx.obj
    found = options.run(job_operations.waiting_steps(signal=signal, tenant=tenant, limit=limit))
    short = {} if as_json else options.shorten_ids([each.job_id for each in found])
    print_records(
        found,
        (LongName("job"), "type", LongName("step"), "signals", "since", "until", Wrapped("ask")),
        lambda w: (
            short[w.job_id], w.type, w.name, " or ".join(w.signals or ()), w.since, w.until,
            "" if w.ask is None else show_json(w.ask),
        ),
        as_json=as_json,
        empty="No suspended job waits.",
    )  # fmt: skip


@app.command("signal")
def send_signal(
    ctx: typer.Context,
    id: JobId,
    name: Annotated[str, typer.Argument(help="The name that a step of the job waits for.")],
    payload: Annotated[str | None, typer.Argument(help="Any JSON value.")] = None,
    key: Annotated[str | None, typer.Option(help="Of signals with the same key the job gets the first only.")] = None,
) -> None:
    """Send a signal to a job, now or before a step of it waits."""
    job = find_job(ctx.obj, id)
    answer = ctx.obj.run(job_operations.signal(job, name, _read_json(payload), key=key))
    match answer:
        case "woken":
            say(f"{job} goes on")
        case "stored":
            say(f"{job} has the signal; no step waits for it yet")
        case "duplicate":
            say(f"{job} has a signal with the key {key} already")
        case _:
            say(f"{job} has ended; nothing was sent", err=True)
            raise typer.Exit(1)


def _read_json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise Usage(f"PAYLOAD is invalid: {error}", hint='give JSON, such as \'{"verdict": "yes"}\'') from None


@app.command()
def wake(ctx: typer.Context, id: JobId) -> None:
    """End the sleep of a suspended job now."""
    job = find_job(ctx.obj, id)
    if not ctx.obj.run(job_operations.wake(job)):
        say(f"{job} does not sleep", err=True)
        raise typer.Exit(1)
    say(f"{job} goes on")


@app.command(reads=True)
def why(
    ctx: typer.Context,
    id: JobId,
    watch: Annotated[bool, typer.Option("--watch", help="Say it again when it changes, until the job runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say why a job does not run, the deciding cause first, and what helps. Exits with 1 if a person must act."""
    job = find_job(ctx.obj, id)
    reasons = _tell_reasons(ctx.obj, job, as_json=as_json)
    while watch and not is_over(reasons):
        time.sleep(_WATCH_SECONDS)
        reasons = _tell_reasons(ctx.obj, job, as_json=as_json, known=reasons)
    raise typer.Exit(1 if needs_action(reasons) else 0)


def _tell_reasons(
    options: GlobalOptions, job: UUID, *, as_json: bool, known: Sequence[JobReason] = ()
) -> list[JobReason]:
    """Prints why the job does not run, unless the causes are the same as before."""
    reasons = options.run(job_operations.why(job))
    if [reason.cause for reason in reasons] == [reason.cause for reason in known]:
        return reasons
    if as_json:
        state = options.run(job_operations.get(job)).state
        causes = [asdict(reason) for reason in reasons]
        place = {"before": find_number_before(reasons), "at": datetime.now(UTC)}
        print_json({"id": job, "state": state, "decisive": reasons[0].cause, "causes": causes} | place)
    else:
        print_reasons(reasons)
    return reasons


@app.command()
def watch(
    ctx: typer.Context,
    id: OneJob = None,
    where: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each change.")] = False,
) -> None:
    """Follow a job until it ends, and exit with 0 if it has succeeded; or print all that ends and fails."""
    if id is not None and where is not None:
        raise Usage(
            "Give the id of a job or a filter.", hint="Without an id it prints all that ends: --where 'queue:mail'."
        )
    try:
        if id is None:
            watch_matches(ctx.obj, read_where(where), as_json=as_json)
        raise typer.Exit(0 if watch_job(ctx.obj, find_job(ctx.obj, str(id)), as_json=as_json) else 1)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command(reads=True)
def tree(ctx: typer.Context, id: JobId, as_json: AsJson = False) -> None:
    """Draw a job with all jobs it waits for and all that wait for it."""
    job = find_job(ctx.obj, id)
    graph = ctx.obj.run(job_operations.dependency_graph(job))
    if as_json:
        print_json(asdict(graph))
        return
    for line in draw_tree(graph, job, ctx.obj.shorten_ids([each.id for each in graph.jobs])):
        say(line)
    if not graph.complete:
        say(f"... only the nearest {len(graph.jobs):,} jobs are shown")


@app.command()
def cancel(
    ctx: typer.Context,
    id: OneJob = None,
    where: Where = None,
    reason: Annotated[str | None, typer.Option(help="Recorded with the job.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="End a running job at once; what its handler reports is ignored.")
    ] = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Cancel a job, or all jobs that match a filter; running ones are asked to stop."""
    text = _choose_job_or_filter(id, where, {"--force": force})
    if text is None:
        arguments = {"reason": reason} if reason else {}
        conditions = read_where(where)
        change_all(ctx.obj, "cancel", conditions, text=where, arguments=arguments, rate=rate, dry_run=dry_run, yes=yes)
        return
    job = find_job(ctx.obj, text)
    state = ctx.obj.run(job_operations.cancel(job, reason=reason, force=force))
    result = {"canceled": "canceled", "running": "asked to stop"}.get(state, f"not canceled: it is {state} already")
    say(f"{job} {result}")
    raise typer.Exit(0 if state in ("canceled", "running") else 1)


@app.command()
def retry(
    ctx: typer.Context,
    id: OneJob = None,
    where: Where = None,
    run_at: RunAt = None,
    from_step: Annotated[
        str | None,
        typer.Option("--from", metavar="STEP", help="Run this step again, and those that were stored after it."),
    ] = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, also if a job has succeeded.")] = False,
) -> None:
    """Run a job again with fresh attempts, or a waiting job at another time; or all failed and dead jobs that match a
    filter."""
    text = _choose_job_or_filter(id, where, {"--run-at": run_at, "--from": from_step})
    if text is None:
        change_all(ctx.obj, "retry", read_where(where), text=where, rate=rate, dry_run=dry_run, yes=yes)
        return
    moment, job = read_instant(run_at), find_job(ctx.obj, text)
    if not yes and ctx.obj.run(job_operations.get(job)).state == "succeeded":
        typer.confirm(f"{job} has succeeded. Run it again?", abort=True)
    before = ctx.obj.run(job_operations.retry(job, run_at=moment, from_step=from_step))
    say(f"{job} queued again; it was {before}")


@app.command()
def release(
    ctx: typer.Context,
    id: OneJob = None,
    where: Where = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Release a running job from its node and queue it again, or all running jobs that match a filter."""
    text = _choose_job_or_filter(id, where, {})
    if text is None:
        change_all(ctx.obj, "release", read_where(where), text=where, rate=rate, dry_run=dry_run, yes=yes)
        return
    job = find_job(ctx.obj, text)
    if not ctx.obj.run(job_operations.release(job)):
        say(f"{job} is not running", err=True)
        raise typer.Exit(1)
    say(f"{job} queued again")


@app.command()
def purge(ctx: typer.Context, where: GivenWhere, rate: Rate = None, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete the finished jobs that match a filter, with their attempts."""
    change_all(ctx.obj, "purge", read_where(where), text=where, rate=rate, dry_run=dry_run, yes=yes)


@app.command()
def move(
    ctx: typer.Context,
    where: GivenWhere,
    to: Annotated[str, typer.Option(metavar="QUEUE", help="The new queue.", autocompletion=complete_queue)],
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Move the waiting jobs that match a filter to another queue."""
    change_all(
        ctx.obj, "move_queue", read_where(where), text=where, arguments={"queue": to}, rate=rate, dry_run=dry_run,
        yes=yes,
    )  # fmt: skip


@app.command()
def prioritize(
    ctx: typer.Context,
    where: GivenWhere,
    priority: Annotated[int, typer.Option(min=-32768, max=32767, help="The new priority. Higher runs first.")],
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Give the waiting jobs that match a filter another priority."""
    change_all(
        ctx.obj, "set_priority", read_where(where), text=where, arguments={"priority": priority}, rate=rate,
        dry_run=dry_run, yes=yes,
    )  # fmt: skip


def _choose_job_or_filter(id: str | None, where: str | None, only_for_one: Mapping[str, object]) -> str | None:
    """Returns the id, or None if the command is for all jobs that match."""
    if (id is None) == (where is None):
        raise Usage("Give the id of a job or a filter.", hint="For many jobs: --where 'state:failed type:mail.*'.")
    if where is not None and (given := [name for name, value in only_for_one.items() if value]):
        raise Usage(f"{given[0]} is for one job.", hint="Give its id in place of --where.")
    return id


def read_json_object(text: str, what: str = "payload") -> dict[str, Any]:
    def refuse_constant(name: str) -> None:  # NaN, Infinity or -Infinity
        raise ValueError(f"JSON has no {name}")

    hint = 'Write a JSON object, and quote it for the shell: \'{"name": "you"}\'.'
    try:  # uses json, because orjson would turn large integers into floats
        payload = json.loads(text, parse_constant=refuse_constant)
    except ValueError as error:
        raise Usage(f"Invalid JSON in {what}: {error}.", hint=hint) from None
    if not isinstance(payload, dict):
        raise Usage(f"Invalid JSON in {what}: it is not an object.", hint=hint)
    return payload


def show_error(error: dict[str, Any] | None) -> str:
    """Returns the kind of an error and the first line of its message."""
    if not error:
        return ""
    return _name_error(error).partition("\n")[0]


def _name_error(error: dict[str, Any]) -> str:
    """Returns the kind of an error and its message, or only one of them if they are the same."""
    kind, message = str(error.get("type", error.get("kind", ""))), str(error.get("message", ""))
    return kind if message == kind else f"{kind}: {message}"


def _format_error(error: dict[str, Any]) -> Painted:
    return Painted(printable_lines("\n".join(filter(None, (_name_error(error), error.get("traceback"))))))


def _show_attempt(job: JobRecord) -> str:
    """Returns a text such as 2/5. Counts the attempt that runs now too, which the database counts only at its end."""
    return f"{job.attempt + (job.state == 'running')}/{job.max_attempts}"


def _describe_state(job: JobRecord) -> str:
    """Returns the state, and what the job waits for: `queued: scheduled for 12:00:41`."""
    if job.state == "suspended":
        if job.wait == "waiting":
            return "suspended"
        return f"suspended until {format_local_time(job.run_at)}"
    if job.waits is None:
        return job.state
    return f"{job.state}: {job.waits}" + (
        f" for {format_local_time(job.run_at)}" if job.run_at > datetime.now(UTC) else ""
    )


def _show_wait(job: JobRecord) -> str | None:
    """Returns how long the job waited after it was due, until it started or ended or until now."""
    seconds = ((job.started_at or job.finished_at or datetime.now(UTC)) - job.run_at).total_seconds()
    return None if seconds < 0 and job.started_at is None else format_elapsed(max(seconds, 0))


def _show_run(job: JobRecord) -> str | None:
    """Returns how long the last run took, or takes until now."""
    if job.started_at is None or job.state not in (*FINISHED, "running"):
        return None
    return format_elapsed(((job.finished_at or datetime.now(UTC)) - job.started_at).total_seconds())


def _format_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone().isoformat(sep=" ", timespec="milliseconds")
    return show_json(value) if isinstance(value, dict | list) else value
