"""docs/howto/dashboard.md: the dashboard in an application of one's own, which says who asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.dashboard.conftest import BASE
from tests.docs.programs import blocks


def test_the_application_of_the_page_says_who_may_do_what(
    schema_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", schema_database)
    scope: dict[str, Any] = {"__name__": "page"}
    text, _ = blocks("howto/dashboard.md")  # the second is run by tests/integrations/django_site/shop/test_dashboard.py
    exec(compile(text, "howto/dashboard.md", "exec"), scope)

    def visit(user: object) -> tuple[int, Any]:
        async def with_user(given: Any, receive: Any, send: Any) -> None:
            await scope["api"]({**given, "user": user}, receive, send)

        with TestClient(with_user, base_url=BASE) as client:
            answer = client.get("/watchbill/api/v1/")
            return answer.status_code, answer.json().get("role")

    assert visit(SimpleNamespace(name="ann", is_admin=True)) == (200, "operator")
    assert visit(SimpleNamespace(name="bob", is_admin=False)) == (200, "reader")
    assert visit(None)[1] is None
    (mounted,) = (route.app for route in scope["api"].routes if getattr(route, "path", "") == "/watchbill")
    assert mounted is not None
