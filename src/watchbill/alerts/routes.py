"""Sends one message: as a webhook, to a Slack-compatible hook, as mail, to a command, or to the log.

Only operators write routes, and receivers are often internal, so any address is allowed; redirects are not followed.
All of it runs in threads with the standard library, and ends within LONGEST_SECONDS.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import logging
import os
import shlex
import signal
import smtplib
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from uuid import UUID

import orjson

from watchbill._version import __version__
from watchbill.alerts.config import AlertConfig
from watchbill.alerts.wording import write_lines, write_title
from watchbill.errors import WatchbillError
from watchbill.model.tenant import DEFAULT_TENANT
from watchbill.secrets import SHORTEST_SECRET, NoSecret, Redaction, Secrets
from watchbill.webhooks import make_headers

logger = logging.getLogger("watchbill.alerts.log")

LONGEST_SECONDS = 30.0  # less than the minute for which a delivery is claimed
ANSWER_SECONDS = 10.0
COMMAND_SECONDS = 10.0
SHOWN_CHARACTERS = 200  # of what a receiver or a command says about a failure
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.ERROR}


class NotSent(WatchbillError):
    """Why a message was not sent. The text has no secrets."""


@dataclass(frozen=True)
class Message:
    """What a receiver gets. `id` is the same whenever the message is sent again."""

    id: UUID
    event: str
    content: dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        return self.content["data"]  # type: ignore[no-any-return]


class Routes:
    def __init__(self, config: AlertConfig) -> None:
        self._config = config
        self._secrets = Secrets(config.references, {})

    async def send(self, kind: str, target: str | None, secret: str | None, message: Message) -> None:
        """Sends the message, or raises NotSent."""
        senders: dict[str, Callable[[str, str | None, Message], Any]] = {
            "webhook": self._send_webhook,
            "slack": self._send_slack,
            "mail": self._send_mail,
            "command": self._run_command,
            "log": self._log,
        }
        if kind not in senders:
            raise NotSent(f"this worker does not know routes of the kind {kind}: a newer one has to send it")
        try:
            await senders[kind](target or "", secret, message)
        except NoSecret as error:
            raise NotSent(str(error)) from None

    async def _send_webhook(self, target: str, secret: str | None, message: Message) -> None:
        body = orjson.dumps(message.content)
        key = None if secret is None else await self._secrets.resolve(secret, DEFAULT_TENANT)
        try:
            headers = make_headers(str(message.id), body, [] if key is None else [key])
        except ValueError as error:  # does not repeat the secret
            raise NotSent(str(error)) from None
        if key is None:
            del headers["webhook-signature"]
        await self._post(target, body, headers, () if key is None else (key,))

    async def _send_slack(self, target: str, _: str | None, message: Message) -> None:
        title = f"[{self._config.installation}] {write_title(message.event, message.data)}"
        text = "\n".join([f"*{_escape(title)}*", *map(_escape, write_lines(message.event, message.data))])
        await self._post(target, orjson.dumps({"text": text}), {}, ())

    async def _post(self, target: str, body: bytes, headers: dict[str, str], secrets: tuple[str, ...]) -> None:
        is_reference = target.startswith(("env:", "file:"))
        address = await self._secrets.resolve(target, DEFAULT_TENANT) if is_reference else target
        url = urlsplit(address)
        # An address behind a reference is a secret, and so are its parts, which an error or an answer may repeat.
        parts = (address, url.path.strip("/"), url.query) if is_reference else ()
        redaction = Redaction(
            each for each in (*secrets, *parts, url.password) if each and len(each) >= SHORTEST_SECRET
        )
        exchange = _Exchange(url, body, headers)
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await asyncio.to_thread(exchange.run)
        except NotSent as error:
            raise NotSent(redaction.text(str(error))) from None
        except TimeoutError:
            raise NotSent(f"the receiver has not answered within {LONGEST_SECONDS:g} s") from None
        finally:
            exchange.end()

    async def _send_mail(self, target: str, _: str | None, message: Message) -> None:
        if self._config.smtp_url is None or self._config.smtp_from is None:
            raise NotSent("no worker that is alive has the settings smtp_url and smtp_from")
        mail = EmailMessage()
        title = write_title(message.event, message.data).replace("\r", " ").replace("\n", " ")
        mail["Subject"] = f"[{self._config.installation}] {title}"
        mail["From"], mail["To"] = self._config.smtp_from, target
        mail["Date"] = formatdate(time.time())
        mail["Message-ID"] = f"<{message.id}@watchbill>"  # the same whenever it is sent again
        mail.set_content("\n".join([title, "", *write_lines(message.event, message.data)]))
        url = urlsplit(self._config.smtp_url)
        redaction = Redaction([url.password] if url.password else [])
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await asyncio.to_thread(_mail, url, mail)
        except NotSent as error:
            raise NotSent(redaction.text(str(error))) from None
        except TimeoutError:
            raise NotSent(f"the mail server has not answered within {LONGEST_SECONDS:g} s") from None

    async def _run_command(self, target: str, _: str | None, message: Message) -> None:
        command = self._config.commands.get(target)
        if command is None:
            raise NotSent(f"no worker that is alive has {target} in its setting alert_commands")
        content = orjson.dumps({"id": str(message.id), **message.content})
        await asyncio.to_thread(_run, shlex.split(command), content)

    async def _log(self, _target: str, _secret: str | None, message: Message) -> None:
        data = message.data
        level = _LEVELS.get(str(data.get("severity")), logging.INFO) if message.event == "raised" else logging.INFO
        lines = "; ".join(write_lines(message.event, data))
        logger.log(level, "Alert %s: %s", write_title(message.event, data), lines)


def _escape(text: str) -> str:
    """As Slack wants it, so that nothing in a subject becomes a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _Exchange:
    """One POST. `end` may be called from another thread: it ends every wait on the connection."""

    def __init__(self, url: SplitResult, body: bytes, headers: dict[str, str]) -> None:
        self._url, self._body = url, body
        self._headers = {"Content-Type": "application/json", "User-Agent": f"watchbill/{__version__}", **headers}
        try:
            port = url.port
        except ValueError:
            raise NotSent("the port of the address is invalid") from None
        if url.scheme not in ("http", "https") or not url.hostname:
            raise NotSent("the address does not begin with http:// or https:// and a host")
        if url.username is not None:
            pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        if url.scheme == "https":
            context = ssl.create_default_context()
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                url.hostname, port, timeout=ANSWER_SECONDS, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(url.hostname, port, timeout=ANSWER_SECONDS)

    def run(self) -> None:
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            self._connection.request("POST", path, self._body, self._headers)
            answer = self._connection.getresponse()
            status, shown = answer.status, answer.read(4 * SHOWN_CHARACTERS).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotSent(f"the receiver cannot be reached: {_describe(error)}") from None
        finally:
            self._connection.close()
        if 300 <= status < 400:
            raise NotSent(f"the receiver answered {status}: redirects are not followed, so give its own address")
        if not 200 <= status < 300:
            raise NotSent(f"the receiver answered {status}: {_shorten(shown)}")

    def end(self) -> None:
        if (open_socket := self._connection.sock) is not None:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {_shorten(str(error))}"


def _shorten(text: str) -> str:
    return " ".join(text.split())[:SHOWN_CHARACTERS]


def _mail(url: SplitResult, mail: EmailMessage) -> None:
    host = url.hostname or ""
    context = ssl.create_default_context()
    try:
        if url.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, url.port or 465, timeout=ANSWER_SECONDS, context=context)
        else:
            server = smtplib.SMTP(host, url.port or 587, timeout=ANSWER_SECONDS)
        with server:
            server.ehlo()
            is_private = url.scheme == "smtps" or _is_this_machine(host)
            if url.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=context)
                is_private = True
            if url.username:
                if not is_private:
                    raise NotSent("the mail server offers no STARTTLS, so the password of smtp_url is not sent")
                server.login(unquote(url.username), unquote(url.password or ""))
            refused = server.send_message(mail)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise NotSent(f"the mail server did not take it: {_describe(error)}") from None
    if refused:
        raise NotSent(f"the mail server did not take it for {', '.join(refused)}")


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _run(command: list[str], content: bytes) -> None:
    """Runs a command with the content as its input, in files: so neither a command that reads nothing nor one whose
    children live on can hold this thread up."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(content)
        given.seek(0)
        try:
            process = subprocess.Popen(
                command, stdin=given, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
            )
        except OSError as error:
            raise NotSent(f"the command cannot be started: {error.strerror}") from None
        try:
            code = process.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise NotSent(f"the command has not ended within {COMMAND_SECONDS:g} s") from None
        if code:
            said.seek(0)
            shown = _shorten(said.read(4 * SHOWN_CHARACTERS).decode("utf-8", "replace"))
            raise NotSent(f"the command ended with {code}: {shown}")
