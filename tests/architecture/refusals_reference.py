"""docs/reference/refused_addresses.md, made of the ways inward that tests/connectors/test_guard.py tries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence

from tests.connectors.test_guard import (
    LOOPBACK_TEXTS,
    LYING_NAMES,
    OTHER_INWARD,
    OTHER_TEXTS,
    REDIRECTS,
    WRAPPED,
)
from watchbill.connectors.guard import GuardedBackend, Refused, Rules, Target, read_redirect, read_target

SHOWN_CHARACTERS = 60
# What Python's own modules say of a text depends on the version of Python.
_SAID_BY_PYTHON = re.compile(r"(?<=cannot be read): .*|(?<=is not a valid name): .*", re.DOTALL)


def refusals_reference() -> str:
    spellings = ((text, _refuse(f"http://{text}/")) for text in LOOPBACK_TEXTS)
    inward = ((text, _refuse(f"http://{f'[{text}]' if ':' in text else text}/")) for text in (*OTHER_INWARD, *WRAPPED))
    return "\n".join(
        [
            _write_table("Spellings of this machine", "host", spellings),
            _write_table("Inward addresses", "host", inward),
            _write_table("Schemes, ports and forms", "address", ((url, _refuse(url)) for url in OTHER_TEXTS)),
            _write_table("Names", "what the name resolves to", map(_look_up, LYING_NAMES)),
            _write_table("Redirects", "address in the redirect", ((each, _redirect(each)) for each in REDIRECTS)),
        ]
    )


def _write_table(title: str, first: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"## {title}", "", f"| {first} | refused with |", "|---|---|"]
    lines += [f"| {_show(text)} | {_escape(_SAID_BY_PYTHON.sub('', why))} |" for text, why in rows]
    return "\n".join([*lines, ""])


def _show(text: str) -> str:
    short = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
    return f"`{_escape(short)}`" if text.strip() else "(nothing)"


def _escape(text: str) -> str:
    """With what cannot be printed, and spaces at the ends, written as in Python."""
    inner = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    start, end = len(inner) - len(inner.lstrip(" ")), len(inner) - len(inner.rstrip(" "))
    return "\\x20" * start + inner.strip(" ") + "\\x20" * end


def _refuse(url: str, answers: Sequence[str] = ("127.0.0.1",)) -> str:
    try:
        return _connect(read_target(url, allow_http=True), answers)
    except Refused as error:
        return error.message


def _redirect(location: str) -> str:
    try:
        before = read_target("http://example.com/", allow_http=True)
        return _connect(read_redirect(before, location.replace("PORT", "8000"), allow_http=True), ("127.0.0.1",))
    except Refused as error:
        return error.message


def _look_up(name: str) -> tuple[str, str]:
    answers = LYING_NAMES[name][0]
    return ", ".join(answers), _refuse(f"http://{name}/", answers)


def _connect(target: Target, answers: Sequence[str]) -> str:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers

    backend = GuardedBackend(Rules(), most_bytes=1, resolve=resolve)
    found = asyncio.run(backend.find_addresses(target.host, target.port))
    raise AssertionError(f"{target.url} is not refused: {found}")
