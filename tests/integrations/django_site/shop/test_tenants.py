"""WATCHBILL["TENANT_FROM"]: the tenant of a request."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connections, transaction
from django.test import Client, TestCase, TransactionTestCase, override_settings

from shop import tenants
from shop.tasks import ship
from watchbill.testing import WatchbillTestCase

with_tenants = override_settings(
    WATCHBILL={"LEASE": "5s", "TENANT_FROM": "shop.tenants.find_tenant"},
    MIDDLEWARE=["shop.tenants.TenantMiddleware"],
    ROOT_URLCONF="shop.tenants",
)


def get(path: str, tenant: str) -> Any:
    return Client(headers={"X-Tenant": tenant}).get(path).json()


@with_tenants
class RequestsInATransaction(WatchbillTestCase, TestCase):
    def test_jobs_and_schedules_belong_to_the_tenant_of_the_request(self) -> None:
        self.assertEqual(get("/enqueue", "blue"), {"tenant": "blue"})
        self.assertEqual(get("/enqueue_async", "red"), {"tenant": "red"})
        self.assertEqual(get("/schedule", "blue"), {"tenant": "blue"})
        self.assertEqual(get("/schedule", "red"), {"tenant": "red"})
        self.assertEqual([job.tenant for job in self.watchbill.jobs()], ["blue", "red"])

    def test_request_within_a_request_has_its_own_tenant(self) -> None:
        self.assertEqual(get("/nested", "blue"), {"inner": "inner", "outer": "blue"})

    def test_block_of_a_test_acts_for_a_tenant(self) -> None:
        with self.watchbill.tenant("green"), transaction.atomic():
            ship.enqueue(1)
        ship.enqueue(1)
        self.assertEqual([job.tenant for job in self.watchbill.jobs()], ["green", "default"])


@with_tenants
class RequestsInThreads(WatchbillTestCase, TransactionTestCase):
    def test_concurrent_requests_have_their_own_tenants(self) -> None:
        def ask(number: int) -> tuple[str, str]:
            tenant = f"tenant{number % 4}"
            try:
                return tenant, get("/enqueue", tenant)["tenant"]
            finally:
                connections.close_all()

        with ThreadPoolExecutor(4) as pool:
            for asked, found in pool.map(ask, range(16)):
                self.assertEqual(asked, found)
        self.assertEqual(len(self.watchbill.jobs()), 16)


class ActingForATenant(WatchbillTestCase, TestCase):
    watchbill_tenant = "green"

    def test_class_acts_for_its_tenant(self) -> None:
        self.assertEqual(ship.enqueue(1).get().tenant, "green")

    async def test_async_tests_too(self) -> None:
        self.assertEqual((await (await ship.aenqueue(1)).aget()).tenant, "green")

    def test_nothing_is_left_behind(self) -> None:
        self.assertIsNone(tenants.find_tenant())
