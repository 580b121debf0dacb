"""`watchbill alerts` and `watchbill silences`: what is wrong, rules, where alerts are sent, what is kept back."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from watchbill.cli.arguments import read_instant, read_since
from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, Usage, print_json, print_records
from watchbill.cli.screen import is_terminal, say
from watchbill.cli.table import LongName, Wrapped
from watchbill.client import alert_operations
from watchbill.model.alert_records import AlertDelivery, AlertRuleRecord, RouteKind, RuleChange, Severity
from watchbill.model.durations import seconds, show_duration

if TYPE_CHECKING:
    from watchbill.client.client import Client

app = command_group("List alerts, change rules, and set where alerts are sent. Without a command: list.")
silences = command_group("List, add and end silences, which keep alerts back. Without a command: list.")

POLL_SECONDS = 0.25

Rule = Annotated[str, typer.Argument(help="Its name, such as backlog; `watchbill alerts rules` lists them.")]
Subject = Annotated[str, typer.Option("--subject", help="For this subject only, such as a queue.")]
RouteName = Annotated[str, typer.Argument(help="Its name.")]
_MATCHING = "Only {}; * stands for any text. Several: give it again."
OfRules = Annotated[list[str] | None, typer.Option("--rule", help=_MATCHING.format("alerts of this rule"))]
OfSubjects = Annotated[list[str] | None, typer.Option("--subject", help=_MATCHING.format("about this subject"))]
OfSeverities = Annotated[list[str] | None, typer.Option("--severity", help=_MATCHING.format("of this severity"))]
OfTenants = Annotated[list[str] | None, typer.Option("--tenant", help=_MATCHING.format("about this tenant"))]


@app.command("list", reads=True)
def list_alerts(
    ctx: typer.Context,
    since: Annotated[
        str | None, typer.Option(help="Also those that have cleared since an instant, or in a time such as 2d.")
    ] = None,
    rule: Annotated[str | None, typer.Option(help="Only of this rule.")] = None,
    as_json: AsJson = False,
) -> None:
    """List what is wrong, those that fire first. Exits with 1 if an alert fires."""
    found = ctx.obj.run(alert_operations.alerts(since=None if since is None else read_since(since), rule=rule))
    print_records(
        found,
        ("severity", "rule", LongName("subject"), "state", "since", Wrapped("reason")),
        lambda each: (
            each.severity,
            each.rule,
            each.subject,
            "silenced" if each.is_silenced else each.state,
            each.since,
            each.reason,
        ),
        as_json=as_json,
        empty="Nothing is wrong, as far as the rules say.",
    )
    if not as_json and is_terminal():
        for command in dict.fromkeys(each.help for each in found if each.state == "firing" and each.help):
            say(f"to look: {command}")
    raise typer.Exit(1 if any(each.state == "firing" for each in found) else 0)


@app.command(reads=True)
def rules(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the rules, with the values that operators have changed."""
    print_records(
        ctx.obj.run(alert_operations.rules()),
        (LongName("rule"), "subject", "above", "for", "severity", "changed by", Wrapped("raised when")),
        lambda each: (
            each.rule,
            each.subject or f"each {each.about}",
            _show_threshold(each),
            show_duration(each.lasting),
            each.severity if each.is_enabled else "off",
            each.changed_by,
            each.title,
        ),
        as_json=as_json,
        empty="There are no rules.",
    )


@app.command("set")
def set_(
    ctx: typer.Context,
    rule: Rule,
    subject: Subject = "",
    above: Annotated[float | None, typer.Option(min=0, help="The value above which it is raised.")] = None,
    lasting: Annotated[str | None, typer.Option("--for", help="How long it must last, such as 10m.")] = None,
    severity: Annotated[Severity | None, typer.Option(help="info, warning or critical.")] = None,
    enabled: Annotated[bool | None, typer.Option("--on/--off", help="Whether the rule counts.")] = None,
) -> None:
    """Change a rule, for all subjects or for one. What is not given stays."""
    change: RuleChange = {}
    if above is not None:
        change["above"] = above
    if lasting is not None:
        change["lasting"] = _read_duration("--for", lasting)
    if severity is not None:
        change["severity"] = severity
    if enabled is not None:
        change["is_enabled"] = enabled
    if not change:
        raise Usage("There is nothing to change.", hint="Give --above, --for, --severity, --on or --off.")
    ctx.obj.run(alert_operations.set_rule(rule, subject, **change))
    say(f"{' '.join(filter(None, (rule, subject)))} changed")


@app.command()
def reset(ctx: typer.Context, rule: Rule, subject: Subject = "") -> None:
    """Give a rule its default values again. Exits with 1 if nothing was changed."""
    is_changed = ctx.obj.run(alert_operations.reset_rule(rule, subject))
    say(f"{' '.join(filter(None, (rule, subject)))} {'reset' if is_changed else 'is as it was made'}")
    raise typer.Exit(0 if is_changed else 1)


@app.command(reads=True)
def routes(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List where alerts are sent, with how the last message ended. Exits with 1 if one was given up."""
    found = ctx.obj.run(alert_operations.routes())
    print_records(
        found,
        (LongName("name"), "kind", LongName("target"), "takes", "waiting", "last", "at", Wrapped("error")),
        lambda each: (
            each.name,
            each.kind,
            each.target,
            _show_matcher(each.matcher) if each.is_enabled else "nothing: it is off",
            each.waiting or "",
            (each.last_state or "").replace("_", " "),
            each.last_at,
            each.last_error,
        ),
        as_json=as_json,
        empty="Alerts are sent nowhere. For example: watchbill alerts route chat --slack env:WATCHBILL_SECRET_CHAT",
    )
    raise typer.Exit(1 if any(each.last_state == "given_up" for each in found) else 0)


@app.command()
def route(
    ctx: typer.Context,
    name: RouteName,
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="Send webhooks to this address.")] = None,
    secret: Annotated[
        str | None, typer.Option(metavar="REFERENCE", help="Sign the webhooks with this secret: env:NAME, file:PATH.")
    ] = None,
    slack: Annotated[
        str | None, typer.Option(metavar="REFERENCE", help="Send to the Slack-compatible hook of this reference.")
    ] = None,
    mail: Annotated[str | None, typer.Option(metavar="ADDRESSES", help="Send mail to these addresses.")] = None,
    command: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run this entry of the setting alert_commands.")
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Write to the log of a worker.")] = False,
    rule: OfRules = None,
    subject: OfSubjects = None,
    severity: OfSeverities = None,
    tenant: OfTenants = None,
    off: Annotated[bool, typer.Option("--off", help="Send nothing there but tests.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the route.")] = False,
) -> None:
    """Set where alerts are sent, or remove a route. With --remove it exits with 1 if there is no such route."""
    targets: dict[RouteKind, str | None] = {"webhook": webhook, "slack": slack, "mail": mail, "command": command}
    given: list[tuple[RouteKind, str | None]] = [each for each in targets.items() if each[1] is not None]
    if log:
        given.append(("log", None))
    if remove:
        if given:
            raise Usage("--remove stands alone.", hint=f"watchbill alerts route {name} --remove")
        is_removed = ctx.obj.run(alert_operations.remove_route(name))
        say(f"{name} removed" if is_removed else f"there is no route {name}", err=not is_removed)
        raise typer.Exit(0 if is_removed else 1)
    if len(given) != 1:
        raise Usage("A route has one target.", hint="Give --webhook, --slack, --mail, --command or --log.")
    ((kind, target),) = given
    matcher = _make_matcher(rule, subject, severity, tenant)
    ctx.obj.run(alert_operations.set_route(name, kind, target, secret=secret, matcher=matcher, is_enabled=not off))
    say(f"{name} set; to try it: watchbill alerts test {name}")


@app.command("test")
def try_(
    ctx: typer.Context,
    name: RouteName,
    wait: Annotated[str, typer.Option(help="How long to wait for a worker, such as 30s.")] = "30s",
    as_json: AsJson = False,
) -> None:
    """Have a worker send a test to a route, and say how it ended. Exits with 1 unless it was delivered."""
    until = time.monotonic() + _read_duration("--wait", wait)
    with ctx.obj.open_client() as client:
        delivery = _wait_for_end(client, name, until)
    if as_json:
        print_json(asdict(delivery))
    elif delivery.state == "delivered":
        say(f"delivered to {name}")
    elif delivery.error is None:
        say(f"no worker has sent it within {wait}; one that lives will: watchbill nodes list", err=True)
    else:
        say(f"not delivered to {name}: {delivery.error}", err=True)
    raise typer.Exit(0 if delivery.state == "delivered" else 1)


def _wait_for_end(client: Client, name: str, until: float) -> AlertDelivery:
    """Waits for the end of the test, or for the error of its first try: later tries may take a day."""
    made = client.run(alert_operations.test_route(name))
    while True:
        (delivery,) = client.run(alert_operations.deliveries(id=made))
        if delivery.ended_at is not None or delivery.error is not None or time.monotonic() >= until:
            return delivery
        time.sleep(POLL_SECONDS)


@app.command(reads=True)
def deliveries(
    ctx: typer.Context,
    alert: Annotated[int | None, typer.Option(min=1, help="Only of the alert with this number.")] = None,
    route: Annotated[str | None, typer.Option(help="Only to this route.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List messages about alerts, newest first, with how they ended."""
    print_records(
        ctx.obj.run(alert_operations.deliveries(alert=alert, route=route, limit=limit)),
        ("made", "alert", "event", LongName("route"), "state", "tries", "next", Wrapped("error")),
        lambda each: (
            each.created_at,
            each.alert,
            each.event,
            each.route,
            each.state.replace("_", " "),
            each.tries,
            each.due_at if each.ended_at is None else None,
            each.error,
        ),
        as_json=as_json,
        empty="No message was made.",
    )


@silences.command("list", reads=True)
def list_silences(
    ctx: typer.Context,
    ended: Annotated[bool, typer.Option("--ended", help="Also those that ended in the last week.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the silences in force."""
    print_records(
        ctx.obj.run(alert_operations.silences(ended=ended)),
        ("id", "keeps back", "until", "by", Wrapped("reason")),
        lambda each: (each.id, _show_matcher(each.matcher), each.until, each.created_by, each.reason),
        as_json=as_json,
        empty="No silence is in force.",
    )


@silences.command()
def add(
    ctx: typer.Context,
    lasting: Annotated[str | None, typer.Option("--for", help="How long, such as 2h.")] = None,
    until: Annotated[str | None, typer.Option(metavar="INSTANT", help="Until when.")] = None,
    rule: OfRules = None,
    subject: OfSubjects = None,
    severity: OfSeverities = None,
    tenant: OfTenants = None,
    everything: Annotated[bool, typer.Option("--everything", help="Keep all alerts back.")] = False,
    reason: Annotated[str | None, typer.Option(help="Shown in the list.")] = None,
) -> None:
    """Keep alerts back for a time. They are still listed; those that fire at the end of the silence are sent then."""
    matcher = _make_matcher(rule, subject, severity, tenant)
    if (lasting is None) == (until is None):
        raise Usage("A silence has one end.", hint="Give --for, such as 2h, or --until.")
    if bool(matcher) == everything:
        raise Usage(
            "It is not clear which alerts are meant.",
            hint="Give --rule, --subject, --severity or --tenant, or --everything.",
        )
    made = ctx.obj.run(
        alert_operations.add_silence(
            matcher,
            lasting=None if lasting is None else _read_duration("--for", lasting),
            until=read_instant(until),
            reason=reason,
        )
    )
    say(f"silence {made} added: {_show_matcher(matcher)}")


@silences.command()
def end(ctx: typer.Context, id: Annotated[int, typer.Argument(help="Its number.")]) -> None:
    """End a silence now. Exits with 1 if it is not in force."""
    is_ended = ctx.obj.run(alert_operations.end_silence(id))
    say(f"silence {id} ended" if is_ended else f"no silence {id} is in force", err=not is_ended)
    raise typer.Exit(0 if is_ended else 1)


def _make_matcher(
    rule: list[str] | None, subject: list[str] | None, severity: list[str] | None, tenant: list[str] | None
) -> dict[str, list[str]]:
    given = {"rule": rule, "subject": subject, "severity": severity, "tenant": tenant}
    return {name: patterns for name, patterns in given.items() if patterns}


def _show_matcher(matcher: dict[str, str | list[str]] | dict[str, list[str]]) -> str:
    parts = [f"{name} {each if isinstance(each, str) else ' or '.join(each)}" for name, each in sorted(matcher.items())]
    return ", ".join(parts) or "all alerts"


def _show_threshold(rule: AlertRuleRecord) -> str:
    if rule.unit is None:
        return ""
    if rule.above is None:
        return f"not set ({rule.unit})"
    return show_duration(timedelta(seconds=rule.above)) if rule.unit == "seconds" else f"{rule.above:g} {rule.unit}"


def _read_duration(option: str, text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise Usage(f"{option} is invalid: {error}.", hint="Give a duration, such as 10m.") from None
