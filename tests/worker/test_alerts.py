"""Messages about alerts reach real receivers: once if nothing fails, with the same id again if something does."""

from __future__ import annotations

import asyncio
import base64
import email
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from email.message import Message as Mail
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from tests.connectors.servers import LocalServer, Received, answer, serve
from tests.worker.conftest import Workbench
from watchbill.alerts.config import AlertConfig
from watchbill.alerts.routes import Message, NotSent, Routes
from watchbill.alerts.sender import AlertSender
from watchbill.redaction import Redaction
from watchbill.store.node_connection import Disconnected, NodeConnection
from watchbill.store.queries import queries
from watchbill.webhooks import verify_webhook

SECRET = f"whsec_{base64.b64encode(b'planted-signing-key-of-alerts').decode()}"
CONFIG = AlertConfig(references=("env:WATCHBILL_SECRET_*",))


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHBILL_SECRET_ALERTS", SECRET)


class Senders:
    """Makes senders, each with a connection of its own, as different nodes have."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self.connections: list[NodeConnection] = []

    def make(self, config: AlertConfig = CONFIG, send: Any = None) -> AlertSender:
        connection = NodeConnection(self._bench.url, queries("watchbill"), purpose="test", timeout=30)
        self.connections.append(connection)
        return AlertSender(connection, config, asyncio.Event(), send)


@asynccontextmanager
async def senders(bench: Workbench) -> AsyncIterator[Senders]:
    made = Senders(bench)
    try:
        yield made
    finally:
        for each in made.connections:
            await each.close()


def raise_alert(bench: Workbench, rule: str = "backlog", reason: str = "1,200 jobs are ready") -> int:
    """Raises an alert and hands it to the routes, as the evaluator does."""
    bench.sql(
        "INSERT INTO watchbill.alerts (rule, subject, severity, state, since, fired_at, value, above, reason) "
        "VALUES (%s, 'mail', 'warning', 'firing', now(), now(), 1200, 1000, %s)",
        rule, reason,
    )  # fmt: skip
    bench.sql("SELECT watchbill._announce_alerts(now())")
    return int(bench.sql("SELECT max(id) FROM watchbill.alerts")[0][0])


def clear_alerts(bench: Workbench) -> None:
    bench.sql(
        "DO $$ BEGIN "
        "UPDATE watchbill.alerts SET state = 'cleared', cleared_at = now() WHERE cleared_at IS NULL; "
        "PERFORM watchbill._announce_alerts(now()); END $$"
    )


def pass_time(bench: Workbench, seconds: float) -> None:
    """Makes what waits for its next try older."""
    bench.sql(
        "UPDATE watchbill.alert_deliveries SET due_at = due_at - %s * interval '1 second', "
        "created_at = created_at - %s * interval '1 second' WHERE ended_at IS NULL",
        seconds, seconds,
    )  # fmt: skip


def states(bench: Workbench) -> list[tuple[Any, ...]]:
    return bench.sql("SELECT event, state FROM watchbill.alert_deliveries ORDER BY created_at, event DESC")


def ids(server: LocalServer) -> list[str]:
    return [{name.lower(): value for name, value in each.headers.items()}["webhook-id"] for each in server.requests]


def read(received: Received) -> Any:
    return verify_webhook(received.headers, received.body, SECRET)


async def test_a_node_sends_what_is_raised_and_what_is_cleared_once_each(bench: Workbench) -> None:
    async with serve() as server, bench.working(lease=1.5) as node, bench.working(lease=1.5):
        await node.wait_until_ready()
        url = f"http://127.0.0.1:{server.port}/hook"
        await bench.app.alerts.aset_route("ops", "webhook", url, secret="env:WATCHBILL_SECRET_ALERTS")
        alert = raise_alert(bench)
        await bench.until(lambda: states(bench) == [("raised", "delivered")])
        clear_alerts(bench)
        await bench.until(lambda: states(bench) == [("raised", "delivered"), ("cleared", "delivered")])
    raised, cleared = map(read, server.requests)
    assert (raised["type"], cleared["type"]) == ("alert.raised", "alert.cleared")
    assert raised["data"]["alert"] == cleared["data"]["alert"] == alert
    assert raised["data"]["help"] == "watchbill queues why mail"
    assert len(set(ids(server))) == 2


async def test_a_sender_that_dies_is_followed_by_another_with_the_same_id(bench: Workbench) -> None:
    """It dies after the claim, after the receiver has the message, and before the end is noted."""
    async with serve() as server, senders(bench) as made:
        await bench.app.alerts.aset_route("ops", "webhook", f"http://127.0.0.1:{server.port}/")
        raise_alert(bench)
        reached = asyncio.Event()

        async def die_before(*_: object) -> None:
            reached.set()
            await asyncio.Event().wait()

        async def die_after(kind: str, target: str, secret: None, message: Message) -> None:
            await Routes(CONFIG).send(kind, target, secret, message)
            await die_before()

        for send in (die_before, die_after):
            reached.clear()
            dying = asyncio.create_task(made.make(send=send).run())
            await reached.wait()
            dying.cancel()
            assert await made.make().run() > 50, "another one leaves it alone for a minute"
            pass_time(bench, 60)
        assert len(server.requests) == 1
        await made.make().run()
        await made.make().run()
    assert len(server.requests) == 2
    assert len(set(ids(server))) == 1, "the id of the message is the same"
    assert states(bench) == [("raised", "delivered")]


async def test_a_lost_connection_to_the_database_repeats_the_message_with_its_id(bench: Workbench) -> None:
    async with serve() as server, senders(bench) as made:
        await bench.app.alerts.aset_route("ops", "webhook", f"http://127.0.0.1:{server.port}/")
        raise_alert(bench)

        async def send(kind: str, target: str, secret: None, message: Message) -> None:
            await Routes(CONFIG).send(kind, target, secret, message)
            bench.sql(
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
                "WHERE application_name = 'watchbill test'"
            )

        with pytest.raises(Disconnected):
            await made.make(send=send).run()
        pass_time(bench, 60)
        await made.make().run()
    assert len(server.requests) == 2
    assert len(set(ids(server))) == 1
    assert states(bench) == [("raised", "delivered")]


async def test_the_end_of_an_alert_waits_for_its_beginning_and_tries_are_further_and_further_apart(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(503, b"busy"))

    async with serve(refuse) as server, senders(bench) as made:
        sender = made.make()
        await bench.app.alerts.aset_route("ops", "webhook", f"http://127.0.0.1:{server.port}/")
        raise_alert(bench)
        clear_alerts(bench)
        pauses = []
        for _ in range(12):
            pauses.append(round(await sender.run()))
            pass_time(bench, 600)
        assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
        assert len(server.requests) == 12
        (_, raised) = await bench.app.alerts.adeliveries()
        assert (raised.tries, raised.error) == (12, "the receiver answered 503: busy")
        pass_time(bench, 86_400)
        await sender.run()
    assert states(bench) == [("raised", "given_up"), ("cleared", "waiting")]
    assert "is given up: the receiver answered 503: busy" in caplog.text
    (route,) = await bench.app.alerts.aroutes()
    assert (route.last_state, route.last_error) == ("given_up", "the receiver answered 503: busy")


async def test_a_redirect_is_not_followed_and_no_error_has_the_address_behind_a_reference(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def redirect(received: Received, writer: asyncio.StreamWriter) -> None:
        status = 302 if received.path == "/secret-of-the-hook" else 400
        writer.write(answer(status, received.path.encode(), Location="http://127.0.0.1:1/"))

    async with serve(redirect) as server, senders(bench) as made:
        for path in ("secret-of-the-hook", "other-secret-path"):
            monkeypatch.setenv("WATCHBILL_SECRET_HOOK", f"http://127.0.0.1:{server.port}/{path}")
            await bench.app.alerts.aset_route("chat", "slack", "env:WATCHBILL_SECRET_HOOK")
            await bench.app.alerts.atest_route("chat")
            await made.make().run()
    errors = [each.error for each in await bench.app.alerts.adeliveries()]
    assert errors == [
        "the receiver answered 400: /[secret]",
        "the receiver answered 302: redirects are not followed, so give its own address",
    ]


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("env:WATCHBILL_DATABASE_URL", "not among the references"),
        ("env:WATCHBILL_SECRET_NONE", "has no such variable"),
        ("file:/etc/passwd", "not among the references"),
        ("env:WATCHBILL_SECRET_FTP", "does not begin with http"),
        ("env:WATCHBILL_SECRET_PORT", "the port of the address is invalid"),
        ("http://127.0.0.1:1/x", "cannot be reached"),
    ],
)
async def test_an_address_that_cannot_be_used_says_why(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, target: str, error: str
) -> None:
    monkeypatch.setenv("WATCHBILL_SECRET_FTP", "ftp://somewhere/else")
    monkeypatch.setenv("WATCHBILL_SECRET_PORT", "http://somewhere:port/")
    with pytest.raises(NotSent, match=error):
        await Routes(CONFIG).send("webhook", target, None, make_message())


def make_message(**data: Any) -> Message:
    facts = {"rule": "backlog", "subject": "<mail>", "severity": "critical", "reason": "many", "since": "now", **data}
    return Message(UUID(int=7), "raised", {"type": "alert.raised", "data": facts})


async def test_a_slack_compatible_hook_gets_a_text_that_mentions_nobody(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as server:
        monkeypatch.setenv("WATCHBILL_SECRET_HOOK", f"http://127.0.0.1:{server.port}/services/T0/B0")
        message = make_message(subject="<!channel>", help="watchbill queues why mail")
        await Routes(CONFIG).send("slack", "env:WATCHBILL_SECRET_HOOK", None, message)
    (received,) = server.requests
    assert orjson.loads(received.body) == {
        "text": "*[watchbill] critical: backlog &lt;!channel&gt;*\nmany\nsince now\nto look: watchbill queues why mail"
    }


class Mailbox:
    """A mail server that keeps what it takes."""

    def __init__(self) -> None:
        self.mails: list[Mail] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
        self.mails.append(email.message_from_bytes(envelope.content))
        return "250 OK"


@asynccontextmanager
async def serve_mail() -> AsyncIterator[tuple[Mailbox, int]]:
    from aiosmtpd.smtp import SMTP

    box = Mailbox()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(box), "127.0.0.1", 0)
    async with server:
        yield box, server.sockets[0].getsockname()[1]


async def test_mail_has_one_id_however_often_it_is_sent(bench: Workbench) -> None:
    async with serve_mail() as (box, port), senders(bench) as made:
        config = replace(CONFIG, smtp_url=f"smtp://127.0.0.1:{port}", smtp_from="watchbill@example.com")
        await bench.app.alerts.aset_route("team", "mail", "ann@example.com, bob@example.com")
        raise_alert(bench)
        await made.make(config).run()
        bench.sql("UPDATE watchbill.alert_deliveries SET state = 'waiting', ended_at = NULL, due_at = now()")
        await made.make(config).run()
    first, second = box.mails
    assert (first["Subject"], first["From"], first["To"]) == (
        "[watchbill] warning: backlog mail", "watchbill@example.com", "ann@example.com, bob@example.com",
    )  # fmt: skip
    assert "1,200 jobs are ready" in str(first.get_payload())
    assert first["Message-ID"] == second["Message-ID"]


async def test_a_node_without_a_mail_server_leaves_mail_to_others_for_a_minute(bench: Workbench) -> None:
    async with senders(bench) as made:
        await bench.app.alerts.aset_route("team", "mail", "ann@example.com")
        await bench.app.alerts.aset_route("pager", "command", "page")
        raise_alert(bench)
        assert await made.make().run() > 50
        assert [each.tries for each in await bench.app.alerts.adeliveries()] == [0, 0]
        pass_time(bench, 60)
        await made.make().run()
    assert sorted(str(each.error) for each in await bench.app.alerts.adeliveries()) == [
        "no worker that is alive has page in its setting alert_commands",
        "no worker that is alive has the settings smtp_url and smtp_from",
    ]


async def test_a_command_gets_the_message_on_its_input(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "taken"
    commands = {"keep": f"tee {file}", "fail": "sh -c 'echo the pager is off >&2; exit 3'", "none": str(tmp_path)}
    config = replace(CONFIG, commands=commands, redaction=Redaction(patterns=("off", "mail")))
    async with senders(bench) as made:
        for name in commands:
            await bench.app.alerts.aset_route(name, "command", name)
        raise_alert(bench, reason="mail waits")
        await made.make(config).run()
    content = orjson.loads(file.read_bytes())
    found = {each.route: each for each in await bench.app.alerts.adeliveries()}
    assert content["id"] == str(found["keep"].id)
    assert content["data"]["reason"] == "[hidden] waits"
    assert found["keep"].state == "delivered"
    assert found["fail"].error == "the command ended with 3: the pager is [hidden]"
    assert str(found["none"].error).startswith("the command cannot be started")


async def test_a_command_that_hangs_is_killed_with_its_children(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watchbill.alerts.routes.COMMAND_SECONDS", 0.05)
    config = replace(CONFIG, commands={"hang": "sh -c 'sleep 1000 & wait'"})
    with pytest.raises(NotSent, match="has not ended within"):
        await Routes(config).send("command", "hang", None, make_message())


async def test_a_receiver_that_hangs_ends_a_try(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def trickle(received: Received, writer: asyncio.StreamWriter) -> None:
        for _ in range(100_000):
            writer.write(b"X")
            await writer.drain()
            await asyncio.sleep(0.01)

    monkeypatch.setattr("watchbill.alerts.routes.LONGEST_SECONDS", 0.1)
    async with serve(trickle) as server:
        with pytest.raises(NotSent, match="has not answered within"):
            await Routes(CONFIG).send("webhook", f"http://127.0.0.1:{server.port}/", None, make_message())


async def test_a_log_has_the_alert(bench: Workbench, caplog: pytest.LogCaptureFixture) -> None:
    async with senders(bench) as made:
        await bench.app.alerts.aset_route("log", "log")
        raise_alert(bench)
        await made.make().run()
    (line,) = [each for each in caplog.records if each.name == "watchbill.alerts.log"]
    assert line.levelno == logging.WARNING
    assert line.getMessage().startswith("Alert warning: backlog mail: 1,200 jobs are ready; since ")


async def test_a_password_is_not_sent_to_a_mail_server_without_tls(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watchbill.alerts.routes._is_this_machine", lambda host: False)
    async with serve_mail() as (box, port):
        config = replace(CONFIG, smtp_url=f"smtp://ann:planted-pass@127.0.0.1:{port}", smtp_from="w@example.com")
        with pytest.raises(NotSent, match="offers no STARTTLS"):
            await Routes(config).send("mail", "bob@example.com", None, make_message())
    assert box.mails == []


async def test_what_waits_for_a_route_that_is_switched_off_is_given_up(bench: Workbench) -> None:
    async with serve() as server, senders(bench) as made:
        url = f"http://127.0.0.1:{server.port}/"
        await bench.app.alerts.aset_route("ops", "webhook", url)
        raise_alert(bench)
        await bench.app.alerts.aset_route("ops", "webhook", url, is_enabled=False)
        await bench.app.alerts.atest_route("ops")
        await made.make().run()
    assert states(bench) == [("raised", "given_up"), ("test", "delivered")]
    assert [orjson.loads(each.body)["type"] for each in server.requests] == ["alert.test"]


async def test_a_route_that_is_removed_while_its_message_is_sent_ends_it(bench: Workbench) -> None:
    async with senders(bench) as made:
        await bench.app.alerts.aset_route("ops", "log")
        raise_alert(bench)

        async def remove(*_: object) -> None:
            assert await bench.app.alerts.aremove_route("ops")
            raise NotSent("too late")

        await made.make(send=remove).run()
        assert await made.make().run() == 3600
    assert states(bench) == [("raised", "given_up")]
