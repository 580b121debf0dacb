"""Reads the fields of a form. There are no uploads, so the standard library is enough."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from watchbill.dashboard.problems import Problem

MAX_FORM_BYTES = 1_000_000


async def read_form_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise Problem(413, f"A form has at most {MAX_FORM_BYTES:,} bytes.")
    return bytes(body)


def parse_fields(body: bytes, *, most_fields: int = 1000) -> dict[str, str]:
    """The fields of a form. The last one of a name counts."""
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=most_fields, errors="strict"))
    except ValueError:
        raise Problem(400, "The form cannot be read.") from None


async def read_form(request: Request, *, most_fields: int = 1000) -> dict[str, str]:
    return parse_fields(await read_form_body(request), most_fields=most_fields)


def read_values(body: bytes, name: str, *, most_fields: int = 1000) -> list[str]:
    """All values of one name, such as those of the boxes that are ticked."""
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=most_fields, errors="strict")
    except ValueError:
        raise Problem(400, "The form cannot be read.") from None
    return [value for field, value in pairs if field == name]
