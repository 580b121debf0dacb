"""The dashboard beside the site, for those whom the site knows as staff."""

import unittest
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.test import TransactionTestCase

HAS_STAFF = apps.is_installed("django.contrib.auth")


async def answer_as_site(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"the site: {scope['path']}".encode()})


@unittest.skipUnless(HAS_STAFF, "this project has no users")
class Staff(TransactionTestCase):
    def setUp(self) -> None:
        from starlette.testclient import TestClient

        from watchbill.integrations.django.dashboard import with_dashboard

        self.client_of_site = TestClient(
            with_dashboard(answer_as_site, prefix="ops/jobs"), base_url="http://localhost", follow_redirects=False
        )

    def log_in(self, **rights: bool) -> None:
        from django.contrib.auth.models import User
        from django.contrib.sessions.backends.db import SessionStore

        user = User.objects.create_user("ann", password="correct horse", **rights)
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.save()
        self.client_of_site.cookies.set(settings.SESSION_COOKIE_NAME, session.session_key or "")

    def test_other_addresses_are_those_of_the_site(self) -> None:
        with self.client_of_site as client:
            for path in ("/", "/ops/jobsearch", "/ops"):
                self.assertEqual(client.get(path).text, f"the site: {path}")

    def test_strangers_and_customers_are_refused(self) -> None:
        with self.client_of_site as client:
            self.assertEqual(client.get("/ops/jobs/").status_code, 401)
            self.log_in()
            self.assertEqual(client.get("/ops/jobs/").status_code, 401)
            client.cookies.set(settings.SESSION_COOKIE_NAME, "invented")
            self.assertEqual(client.get("/ops/jobs/").status_code, 401)

    def test_staff_are_operators(self) -> None:
        self.log_in(is_staff=True)
        with self.client_of_site as client:
            page = client.get("/ops/jobs/")
            self.assertIn("ann, operator", page.text)
            self.assertIn('href="/ops/jobs/queues"', page.text)
            self.assertEqual(client.get("/ops/jobs/keys").status_code, 403)
            refused = client.post("/ops/jobs/queue/pause", data={"queue": "mail"})
            self.assertEqual(refused.status_code, 403)  # without the token of a form

    def test_superusers_are_admins(self) -> None:
        self.log_in(is_staff=True, is_superuser=True)
        with self.client_of_site as client:
            self.assertEqual(client.get("/ops/jobs/keys").status_code, 200)
