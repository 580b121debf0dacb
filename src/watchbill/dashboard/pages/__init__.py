"""The pages. Each file has the pages of one subject; `routes` lists them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from watchbill.dashboard.problems import Problem


def routes() -> list[BaseRoute]:
    """Every page, and the files of `static/`."""
    return []


async def show_problem(request: Request, problem: Problem) -> Response:
    """The page for a request that failed."""
    text = f"{problem.title}\n{problem.detail}\n{problem.hint or ''}".rstrip()
    return PlainTextResponse(text, problem.status, headers=problem.headers)
