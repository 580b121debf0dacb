"""Tenants: what each uses of its quotas, and one tenant with its figures and forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations, tenant_operations
from watchbill.dashboard import charts
from watchbill.dashboard.actions import Fields, act, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.figure_charts import LEGEND, read_figures, show_causes
from watchbill.dashboard.figures import WINDOWS, find_window
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import make_timepiece, show
from watchbill.dashboard.visit import get_visit
from watchbill.dashboard.words import write_bytes, write_number
from watchbill.model.tenant_record import TenantRecord

MOST_TENANTS, MOST_AUDITED = 500, 10
_NEARLY_FULL = 0.8


@dataclass(frozen=True)
class Usage:
    """What a tenant uses of one quota."""

    word: str
    quota: str  # its name in set_tenant()
    used: float | None
    most: float | None
    is_size: bool = False

    @property
    def is_full(self) -> bool:
        return self.most is not None and (self.used or 0) >= self.most

    @property
    def meter(self) -> Markup:
        if self.most is None:
            return Markup("")
        share = (self.used or 0) / self.most if self.most else 1.0
        state = "dead" if share >= 1 else "failed" if share >= _NEARLY_FULL else "running"
        return charts.meter(self.used or 0, self.most or 1, state, label=f"{self.word}: {share:.0%}")

    @property
    def text(self) -> str:
        write = (lambda number: write_bytes(int(number))) if self.is_size else write_number
        used = "-" if self.used is None else write(self.used)
        return used if self.most is None else f"{used} of {write(self.most)}"


def list_usages(tenant: TenantRecord) -> list[Usage]:
    return [
        Usage("Running", "running", tenant.running, tenant.max_running),
        Usage("Unfinished", "unfinished", tenant.unfinished, tenant.max_unfinished),
        Usage("Payloads", "payload_bytes", tenant.payload_bytes, tenant.max_payload_bytes, is_size=True),
        Usage("Enqueued per min", "per_minute", tenant.enqueued, tenant.max_per_minute),
    ]


async def show_tenants(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    text = request.query_params.get("q", "").strip()[:100]
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        tenants = await transaction.run(tenant_operations.tenants())
    found = [tenant for tenant in tenants if text.lower() in tenant.tenant.lower()]
    found.sort(key=lambda each: (not any(usage.is_full for usage in list_usages(each)), -each.unfinished, each.tenant))
    values = {"tenants": [(each, list_usages(each)) for each in found[:MOST_TENANTS]], "number": len(found),
              "text": text}  # fmt: skip
    return show(request, "tenants.html", frame, values)


async def show_tenant(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    name = request.query_params.get("name", "")
    window = find_window(request.query_params.get("window") or "6h")
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        found = await transaction.run(tenant_operations.tenants(name)) if name else []
        if not found:
            raise Problem(404, f"There is no tenant {name[:100]!r}.",
                          hint="A tenant is known while it has a quota, an unfinished job or a schedule.")  # fmt: skip
        causes = await transaction.run(job_operations.count_causes(tenant=name))
        zone = make_timepiece(request, frame.now).zone
        figures = await read_figures(transaction, window, frame.now, zone, "tenant", name)
        audit = await transaction.run(job_operations.audit(subject=f"tenant {name}", limit=MOST_AUDITED))
    values = {
        "tenant": found[0], "usages": list_usages(found[0]), "causes": show_causes(causes, visit.board.redaction),
        "figures": figures, "window": window, "windows": WINDOWS[1:], "legend": LEGEND, "audit": audit,
    }  # fmt: skip
    return show(request, "tenant.html", frame, values)


async def _set(transaction: Transaction, fields: Fields) -> str:
    """Sets every quota of the form. An empty field removes one."""
    name = read_field(fields, "name")
    quotas: dict[str, Any] = {}
    for quota in ("running", "unfinished", "payload_bytes", "per_minute"):
        text = fields.get(quota, "").strip().replace(",", "")
        if text and not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise Problem(422, f"{quota.replace('_', ' ')} is {text[:20]!r}, which is not a whole number.")
        quotas[quota] = int(text) if text else None
    changed = await transaction.run(tenant_operations.set_tenant(name, quotas))
    return f"The quotas of {name} are changed." if changed else f"The quotas of {name} were these already."


ROUTES: list[BaseRoute] = [
    Route("/tenants", show_tenants, methods=["GET"]),
    Route("/tenant", show_tenant, methods=["GET"]),
    Route("/tenant/set", act("admin", _set), methods=["POST"]),
]
