"""The pages. Each file has the pages of one subject and their actions; `PAGES` names them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from watchbill.dashboard import live
from watchbill.dashboard.actions import read_back
from watchbill.dashboard.pages import (
    alerts,
    audit,
    bulk,
    calendar,
    cluster,
    failures,
    find,
    job,
    job_actions,
    jobs,
    keys,
    limits,
    nodes,
    operations,
    overview,
    queues,
    schedule_actions,
    schedules,
    system,
    tenants,
    try_task,
    types,
)
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import THEME_COOKIE, ZONE_COOKIE, find_here, set_cookie, show
from watchbill.dashboard.static_files import serve_file
from watchbill.dashboard.visit import get_visit, link

PAGES = (
    overview, jobs, bulk, job, job_actions, failures, schedules, schedule_actions, calendar, queues, types, try_task,
    limits, tenants, nodes, cluster, operations, alerts, audit, system, keys, find,
)  # fmt: skip
_YEAR_SECONDS = 365 * 24 * 3600
_CHOICES = {"theme": (THEME_COOKIE, ("light", "dark")), "zone": (ZONE_COOKIE, ("utc", "local"))}


def routes() -> list[BaseRoute]:
    """Every page, and the files of `static/`."""
    own: list[BaseRoute] = [
        Route("/static/{digest}/{name}", serve_file, methods=["GET"]),
        Route(live.PATH, live.watch, methods=["GET"]),
        Route("/login", show_login, methods=["GET"]),
        Route("/prefer", prefer, methods=["GET"]),
    ]
    return own + [route for page in PAGES for route in page.ROUTES]


async def show_login(request: Request) -> Response:
    return show(request, "login.html", values={"problem": None, "next": request.query_params.get("next", "/")})


async def prefer(request: Request) -> Response:
    """Remembers how this browser wants to see pages: `?theme=dark`, `?zone=local`; anything else is the default."""
    response = RedirectResponse(read_back(request, request.query_params), 303)
    for name, (cookie, choices) in _CHOICES.items():
        wanted = request.query_params.get(name)
        if wanted in choices:
            set_cookie(request, response, cookie, wanted, seconds=_YEAR_SECONDS)
        elif wanted is not None:
            response.delete_cookie(cookie, path=request.scope.get("root_path", "") or "/")
    return response


async def show_problem(request: Request, problem: Problem) -> Response:
    """The page for a request that failed. A stranger gets the login form."""
    visit = get_visit(request)
    if problem.status == 401 and visit.board.has_login:
        if request.method == "GET":
            return RedirectResponse(link(request, "/login", next=find_here(request)), 303)
        return show(request, "login.html", values={"problem": problem, "next": "/"}, status=401)
    return show(request, "problem.html", values={"problem": problem}, status=problem.status, headers=problem.headers)
