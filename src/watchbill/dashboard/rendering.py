"""Makes pages from templates. A template gets the values of its page, and what `_list_tools` lists.

`ui` are the macros of `macros.html`. Text is escaped wherever it comes from; only this module and the charts make
markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote, unquote, urlencode
from zoneinfo import ZoneInfo

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from watchbill.dashboard import words
from watchbill.dashboard.layout import DOCK, RAIL, Entry, Frame
from watchbill.dashboard.searches import quote_value
from watchbill.dashboard.static_files import load_files
from watchbill.dashboard.visit import get_visit, link
from watchbill.dashboard.words import Timepiece

THEME_COOKIE = "watchbill_theme"  # light or dark; the system's without it
ZONE_COOKIE = "watchbill_zone"  # utc or local
LOCAL_ZONE_COOKIE = "watchbill_local"  # the name of the browser's zone, which a script writes
NOTICE_COOKIE = "watchbill_notice"  # what an action has done, for the next page
MOST_SHOWN_CHARACTERS = 300  # of a value in a list
_MAX_NOTICE = 300


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("watchbill.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": words.write_number,
        "short_number": words.write_short_number,
        "share": words.write_share,
        "rate": words.write_rate,
        "bytes": words.write_bytes,
        "duration": words.write_duration,
        "coarse": words.write_coarse_duration,
        "clip": clip,
        "term": quote_value,
        "plain": write_plain,
        "first_line": lambda text: str(text).partition("\n")[0],
    }
    return environment


def clip(value: object, length: int = MOST_SHOWN_CHARACTERS) -> str:
    """A value of a list, cut off with an ellipsis."""
    text = str(value)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def write_plain(value: object) -> str:
    """A value of JSON as text: a text as it is, anything else as JSON has it."""
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def show(
    request: Request,
    template: str,
    frame: Frame | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The page that this template makes of these values."""
    response = HTMLResponse(render(request, template, frame, values), status, headers=headers)
    if NOTICE_COOKIE in request.cookies:
        response.delete_cookie(NOTICE_COOKIE, path=_cookie_path(request))
    return response


def render(
    request: Request,
    template: str,
    frame: Frame | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    block: str | None = None,
) -> str:
    """The text of a page, or of one of the blocks of its template."""
    found = _environment().get_template(template)
    known = {**_list_tools(request, frame), **(values or {})}
    known["ui"] = _environment().get_template("macros.html").make_module(known)
    if block is None:
        return found.render(known)
    context = found.new_context(known)
    return "".join(found.blocks[block](context))


def _list_tools(request: Request, frame: Frame | None) -> dict[str, Any]:
    """What every template may use."""
    visit = get_visit(request)
    identity, look = visit.identity, visit.board.look
    timepiece = make_timepiece(request, frame.now if frame else datetime.now(UTC))
    files = load_files(look.color)
    return {
        "rail": _list_entries(request),
        "dock": DOCK,
        "counts": frame.counts if frame else {},
        "data_age": frame.data_age if frame else None,
        "identity": identity,
        "may": identity.may if identity else lambda role: False,
        "form_token": visit.form_token,
        "has_login": visit.board.has_login,
        "is_read_only": visit.board.read_only,
        "installation": look.name or "watchbill",
        "has_color": look.color is not None,
        "peers": look.peers,
        "theme": _read_choice(request, THEME_COOKIE, ("light", "dark")),
        "zone": _read_choice(request, ZONE_COOKIE, ("utc", "local")) or "utc",
        "notice": _read_notice(request),
        "timepiece": timepiece,
        "now": timepiece.now,
        "link": partial(link, request),
        "address_of": partial(find_address_of, request),
        "static": lambda name: link(request, f"/static/{files.digest}/{name}"),
        "here": find_here(request),
        "with_query": partial(with_query, request),
        "ago": _write_times(timepiece, timepiece.write_relative),
        "at": _write_times(timepiece, timepiece.write_clock),
    }


def _list_entries(request: Request) -> list[tuple[str, list[Entry]]]:
    """The rail with the pages that exist and that the caller may see."""
    paths = {getattr(route, "path", None) for route in request.app.routes}
    identity = get_visit(request).identity
    shown = [
        (group, [entry for entry in entries if entry.path in paths and identity and identity.may(entry.role)])
        for group, entries in RAIL
    ]
    return [(group, entries) for group, entries in shown if entries]


def _write_times(timepiece: Timepiece, write: Callable[[datetime], str]) -> Callable[[datetime | None], Markup | str]:
    """A function that shows an instant, with the exact time for those who ask."""

    def show_time(instant: datetime | None) -> Markup | str:
        if instant is None:
            return words.NONE
        exact = timepiece.write_exact(instant)
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            instant.astimezone(UTC).isoformat(), exact, write(instant)
        )

    return show_time


def make_timepiece(request: Request, now: datetime) -> Timepiece:
    if _read_choice(request, ZONE_COOKIE, ("local",)) is None:
        return Timepiece(now)
    zone = _find_zone(unquote(request.cookies.get(LOCAL_ZONE_COOKIE, ""))[:64])
    return Timepiece(now, zone, getattr(zone, "key", None) or str(zone))


def _find_zone(name: str) -> tzinfo:
    """The zone of the browser; that of this server if no script has told it."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return datetime.now(UTC).astimezone().tzinfo or UTC


# -- Addresses


def find_here(request: Request) -> str:
    """The address of this page inside the dashboard, to come back to."""
    path = request.url.path.removeprefix(request.scope.get("root_path", "")) or "/"
    return f"{path}?{request.url.query}" if request.url.query else path


def find_address_of(request: Request, subject: str, tenant: str | None) -> str | None:
    """The page of a thing that an audit row or an alert is about, such as `queue mail`; None if it has none."""
    kind, _, name = subject.partition(" ")
    match kind:
        case "job" if name:
            return link(request, f"/job/{quote(name, safe='')}")
        case "schedule" if name:
            return link(request, "/schedule", name=name, tenant=tenant or "default")
        case "queue" | "type" | "limit" | "tenant" | "node" if name:
            return link(request, f"/{kind}", name=name)
        case "operation" if name:
            return link(request, "/operation", id=name)
        case "group" if name:
            return link(request, "/cluster", group=name)
        case "lock":
            return link(request, "/cluster")
        case "key":
            return link(request, "/keys")
    return None


def with_query(request: Request, **changes: str | int | None) -> str:
    """This page with other values in its query; None takes one away."""
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in changes]
    query = urlencode([*kept, *((name, value) for name, value in changes.items() if value is not None)])
    return request.url.path + (f"?{query}" if query else "")


# -- Cookies


def _read_choice(request: Request, cookie: str, choices: tuple[str, ...]) -> str | None:
    value = request.cookies.get(cookie)
    return value if value in choices else None


def _read_notice(request: Request) -> str | None:
    value = request.cookies.get(NOTICE_COOKIE)
    return unquote(value)[:_MAX_NOTICE] if value else None


def leave_notice(request: Request, response: Response, text: str) -> None:
    """Lets the next page say what was done."""
    set_cookie(request, response, NOTICE_COOKIE, quote(text[:_MAX_NOTICE]), seconds=60)


def set_cookie(request: Request, response: Response, name: str, value: str, *, seconds: int) -> None:
    is_secure = request.url.scheme == "https"
    path = _cookie_path(request)
    response.set_cookie(
        name, value, max_age=seconds, path=path, secure=is_secure, httponly=name == NOTICE_COOKIE, samesite="lax"
    )


def _cookie_path(request: Request) -> str:
    return request.scope.get("root_path", "") or "/"
