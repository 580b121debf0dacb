"""The task `connector.http.request`: from a payload to a request, and from an answer to the outcome of the job."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode

import orjson

from watchbill.connectors.exchange import Answer, Headers, NoAnswer, Request
from watchbill.connectors.outgoing import (
    OWN_HEADERS,
    Outgoing,
    Place,
    RequestFailed,
    check_headers,
    limit_timeout,
    merge_headers,
)
from watchbill.model.decisions import Permanent, RetryAfter
from watchbill.secrets import Redaction
from watchbill.worker.run import Run

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
DEFAULT_MOST_BYTES = 1_048_576
MOST_REDIRECTS = 5
SHORTEST_RETRY_AFTER_SECONDS, LONGEST_RETRY_AFTER_SECONDS = 1.0, 86_400.0
SHOWN_OF_BODY = 500  # characters of an unexpected answer that the error shows
_TRIED_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_UNSAFE = frozenset({"POST", "PATCH"})
_KEPT_HEADERS = (
    "content-type", "date", "etag", "last-modified", "location", "retry-after", "x-request-id", "ratelimit-limit",
    "ratelimit-remaining", "ratelimit-reset",
)  # fmt: skip


class _Body:
    """What a payload says about the body: `json`, `body` or `body_base64`."""

    def __init__(self, json: Any, text: str | None, encoded: str | None) -> None:
        given = [each for each in (json, text, encoded) if each is not None]
        if len(given) > 1:
            raise Permanent("give one of json, body and body_base64")
        self.content, self.type = b"", ""
        if json is not None:
            self.content, self.type = orjson.dumps(json), "application/json"
        elif text is not None:
            self.content, self.type = text.encode(), "text/plain; charset=utf-8"
        elif encoded is not None:
            try:
                self.content = base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                raise Permanent("body_base64 is not base64") from None
            self.type = "application/octet-stream"

    @property
    def headers(self) -> Headers:
        return (("Content-Type", self.type),) if self.type else ()


async def send_request(
    run: Run,
    outgoing: Outgoing,
    *,
    endpoint: str | None,
    path: str,
    url: str | None,
    method: str,
    query: dict[str, Any],
    headers: dict[str, str],
    json: Any,
    body: str | None,
    body_base64: str | None,
    expect: Sequence[int] | None,
    timeout: float | None,
    max_response: int,
    truncate: bool,
    redirects: int,
    retry_unsafe: bool,
    keep_headers: Sequence[str] | None,
) -> dict[str, Any]:
    """Sends the request of a job, and returns the result of the job."""
    method = method.upper()
    if method not in METHODS:
        raise Permanent(f"method {method[:20]!r} is invalid: give one of {', '.join(sorted(METHODS))}")
    if not 0 <= redirects <= MOST_REDIRECTS:
        raise Permanent(f"redirects={redirects} is invalid: at most {MOST_REDIRECTS} are followed")
    if timeout is not None and not 0 < timeout <= 3_600:
        raise Permanent("timeout must be more than 0 and at most 3600 seconds")
    if max_response < 0:
        raise Permanent("max_response must be 0 or more")
    given = check_headers(headers)
    content = _Body(json, body, body_base64)
    place = await outgoing.find_place(
        run.tenant, kind="http", endpoint=endpoint, path=path, query=_encode_query(query), url=url
    )
    own = (*OWN_HEADERS, ("Idempotency-Key", str(run.id)))
    request = Request(
        method,
        place.target,
        headers=merge_headers(own, content.headers, place.headers, given),
        body=content.content,
        secrets=place.secrets,
        secret_hosts=place.secret_hosts,
        timeout=limit_timeout(run, place, timeout),
        most_bytes=min(max_response, outgoing.most_bytes),
        truncate=truncate,
        redirects=redirects,
    )
    try:
        answer = await outgoing.send(run, place, request, endpoint)
    except NoAnswer as error:
        if error.was_sent and method in _UNSAFE and not retry_unsafe:
            raise Permanent(f"{error}; not tried again, because the server may have acted (retry_unsafe)") from None
        raise RequestFailed(str(error)) from None
    if not (200 <= answer.status < 300 if expect is None else answer.status in expect):
        _refuse(run, place, method, answer)
    return _make_result(run, outgoing, place.redaction, answer, keep_headers)


def _refuse(run: Run, place: Place, method: str, answer: Answer) -> None:
    """Raises what decides whether the request is tried again."""
    message = describe_answer(place.redaction, answer)
    # The server may still work on an earlier try with the same Idempotency-Key.
    is_under_way = answer.status == 409 and method in _UNSAFE and run.claimed.run > 1
    if answer.status not in _TRIED_AGAIN and not is_under_way:
        raise Permanent(message)
    delay = read_retry_after(answer)
    raise RequestFailed(message) if delay is None else RetryAfter(delay, message)


def describe_answer(redaction: Redaction, answer: Answer) -> str:
    body = redaction.data(answer.body, is_cut=answer.has_more)
    shown = body[: 4 * SHOWN_OF_BODY].decode("utf-8", "replace").strip()[:SHOWN_OF_BODY]
    return redaction.text(f"{answer.url} answered {answer.status}") + (f": {shown}" if shown else "")


def read_retry_after(answer: Answer) -> float | None:
    """How long the server asks to wait, in seconds: at least one, and at most a day. None if it does not say."""
    text = answer.find("retry-after")
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        seconds = float(text)
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        seconds = (at - datetime.now(UTC)).total_seconds()
    return min(max(seconds, SHORTEST_RETRY_AFTER_SECONDS), LONGEST_RETRY_AFTER_SECONDS)


def _make_result(
    run: Run, outgoing: Outgoing, redaction: Redaction, answer: Answer, keep: Sequence[str] | None
) -> dict[str, Any]:
    names = _KEPT_HEADERS if keep is None else {name.lower() for name in keep}
    headers = {name: redaction.text(value.replace("\0", "")) for name, value in answer.headers if name in names}
    body = redaction.data(answer.body, is_cut=answer.has_more)
    result: dict[str, Any] = {
        "status": answer.status,
        "headers": headers,
        **_read_content(body, dict(answer.headers).get("content-type", ""), redaction, is_cut=answer.has_more),
        "bytes": len(answer.body),
        "seconds": round(answer.seconds, 3),
        "url": redaction.text(answer.url),
        "tries": run.attempt,
    }
    if answer.has_more:
        result["truncated"] = True
    if len(orjson.dumps(result)) > outgoing.max_result and "text" in result:
        # A control character takes six bytes in JSON, and three of any kind take four in base64.
        result["base64"] = base64.b64encode(result.pop("text").encode()).decode()
    if len(orjson.dumps(result)) > outgoing.max_result:
        raise Permanent(f"the answer does not fit into a result of {outgoing.max_result:,} bytes (max_result)")
    return result


def _encode_query(query: dict[str, Any]) -> str:
    pairs = []
    for name, given in query.items():
        for value in given if isinstance(given, list) else [given]:
            if isinstance(value, bool):
                pairs.append((name, "true" if value else "false"))
            elif isinstance(value, str | int | float):
                pairs.append((name, str(value)))
            else:
                raise Permanent(f"query[{name[:100]!r}] must be a text, a number, true, false, or a list of these")
    return urlencode(pairs)


def _read_json(body: bytes, redaction: Redaction) -> dict[str, Any] | None:
    """None for what is not JSON, or what we cannot store. Removes secrets once more, because a text in JSON has many
    spellings."""
    try:
        content = orjson.dumps({"json": orjson.loads(body)})
        found: dict[str, Any] = orjson.loads(redaction.data(content))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return None if b"\\u0000" in content else found


def _read_content(body: bytes, content_type: str, redaction: Redaction, *, is_cut: bool) -> dict[str, Any]:
    """The content of an answer as JSON, as text, or in base64 if it is neither. PostgreSQL stores no NUL."""
    if not body:
        return {}
    if (
        re.match(r"application/([\w.+-]+\+)?json\b", content_type)
        and (found := _read_json(body, redaction)) is not None
    ):
        return found
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(body, final=not is_cut)
    except UnicodeDecodeError:
        text = "\0"
    return {"base64": base64.b64encode(body).decode()} if "\0" in text else {"text": text}
