"""An open transaction of a role that is bound to a tenant makes nobody of another tenant wait, and no node.

Each function that such a role may call is called for its own tenant, and its transaction stays open. Meanwhile
producers and operators of another tenant, and nodes, call what they call all day.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.store.security_checks import STATED
from tests.store.test_bound_rights import CALLS, OWN_JOBS, OWN_NAMES, REFUSED, Site
from tests.store.test_bound_rights import site as site
from watchbill.postgres.rights import ROLE_KINDS

FREE = """'{"url": "https://x.example/"}'"""
# More ways to call some functions, which write what tenants share or lock more.
HOLDS = {
    "enqueue": (
        "'t', idempotency_key => 'k'", "'t', unique_by => 'u'", """'t', retry => '{"base": 77}'""",
        f"'connector.http.request', {FREE}", f"'connector.webhook.deliver', {FREE}",
        """'t', meta => '{"notify": {"url": "https://x.example/", "on": ["dead"]}}'""",
        "'t', limit_keys => '{shared:z}'", "'t', ordered_by => 'o'", """'t', runs_on => '{"new": 1}'""",
        "'t', expires_in => '1 second'",
    ),
    "add_schedule": ("'hourly', '17 3 * * *', 't'", "'often', '@every 77m', 't'"),
    "set_endpoint": ("""'other', '{"base_url": "https://x.example"}', 'a'""",),
    "remove_schedule": ("'nightly_b', 'b'",),
    "run_schedule": ("'nightly_b', 'b', overlap => 'cancel_previous'",),
}  # fmt: skip
# What nodes and tenant `b` do meanwhile. Two calls are left out: what makes partitions waits for readers of the
# history, and tries again later; and resume() waits for claims.
CALLED = [
    "claim(%(epoch)s, '{own,default,two,fresh}', 9)", "claim(%(epoch)s, '{own}', 1, alone => true)", "promote()",
    "unblock()", "tick()", "run_operations()", "refresh_quotas(true)", "sweep_limits()", "sweep_claims('1 second')",
    "sweep_dependencies()", "sweep_steps()", "_survey(%(epoch)s, '{default}')", "_observe()", "heartbeat(%(epoch)s)",
    """declare_limits(%(epoch)s, '[{"name": "shared", "max": 1, "hash": "1"}]')""",
    """declare_queues(%(epoch)s, '[{"name": "slow", "max": 1, "hash": "1"}]')""",
    """declare_schedules(%(epoch)s,
      '[{"name": "hourly", "pattern": "17 3 * * *", "type": "t", "tenant": "b", "hash": "1"}]')""",
    """declare_endpoints(%(epoch)s, '[{"name": "other", "tenant": "b", "base_url": "https://x.example"}]')""",
    "reclaim('{%(silent)s}', '{0}')", "expire_unsupported('1 second')", "unpark_paused()", "unpark('{shared:x}')",
    "release_unknown(%(epoch)s, '{}')", "stop_requests(%(epoch)s)", "prune_keys()", "prune_nodes('1 hour')",
    "prune_operations('1 hour')", "prune_audit('1 hour')", "prune_web('1 hour')", "set_limit('shared', 9)",
    "clear_limit('shared')", "pause('default')", """set_tenant('b', '{"unfinished": 5000}')""",
    "start_cluster(%(epoch)s)", "_release_orphans()", "leave(%(epoch)s)", "_report_tally(%(epoch)s, 9, '[]')",
    "settle(%(epoch)s, '{%(running)s}', '{%(fence)s}')", "enqueue('t', tenant => 'b')",
    f"enqueue('connector.http.request', {FREE}, tenant => 'b')",
    f"enqueue('connector.webhook.deliver', {FREE}, tenant => 'b')",
    """enqueue('t', tenant => 'b', retry => '{"base": 77}')""",
    "enqueue('t', tenant => 'b', limit_keys => '{shared:z}')",
    """enqueue('t', tenant => 'b', runs_on => '{"new": 1}')""", "enqueue('t', tenant => 'b', ordered_by => 'o')",
    "enqueue('t', tenant => 'b', idempotency_key => 'k')", "add_schedule('hourly', '17 3 * * *', 't', tenant => 'b')",
    "add_schedule('often', '@every 77m', 't', tenant => 'b')", "run_schedule('nightly_b', 'b')",
    "cancel('%(waiting)s')", "reschedule('%(dead)s')", "signal('%(waiting)s', 'x')", "watch('%(waiting)s')",
    "purge('{dead}', tenant => 'b')",
    "erase_tenant('b')", "save_filter('jobs', 'mine', 'x', 'b')", "lock_acquire('free')",
]  # fmt: skip


def list_holds(site: Site) -> Iterator[tuple[str, str]]:
    """Kinds of roles, and calls in their own tenant."""
    own: dict[str, str] = dict(site.session.execute("SELECT name, value FROM pg_temp.site").fetchall())
    for kind in ROLE_KINDS:
        for name, arguments in CALLS.items():
            if kind in STATED[name].roles and name not in REFUSED and name not in site.stable:
                for given in (*arguments, *HOLDS.get(name, ())):
                    text = given % own
                    for of_b, of_a in OWN_NAMES.items():
                        text = text.replace(of_b, of_a)
                    yield kind, f"{name}({text})"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_an_open_transaction_of_a_bound_role_delays_nobody_else(site: Site) -> None:
    values, session = dict(site.values), site.session
    session.execute(OWN_JOBS.encode())
    delayed, held = [], 0
    with psycopg.connect(site.logins.owner_url, autocommit=True) as other:
        other.execute("SET lock_timeout = '150ms'")
        for kind, hold in list_holds(site):
            session.execute(
                f"""BEGIN; SET LOCAL watchbill.tenant = 'a';
                SET LOCAL SESSION AUTHORIZATION "{site.logins.database}_bound_{kind}" """.encode()
            )
            try:
                session.execute(f"SELECT * FROM watchbill.{hold}".encode())
            except psycopg.Error:  # such as a job that runs: then nothing stays locked
                session.execute("ROLLBACK")
                continue
            held += 1
            for call in CALLED:
                other.execute("BEGIN")
                try:
                    other.execute(f"SELECT * FROM watchbill.{call % values}".encode())
                except psycopg.errors.LockNotAvailable:
                    delayed.append(f"{kind}: {hold} delays {call % values}")
                other.execute("ROLLBACK")
            session.execute("ROLLBACK")
    assert held > 150
    assert not delayed, "\n".join(delayed)
