"""app.alerts: alerts, their rules, routes and silences, each call with its `a`-twin.

Never part of a transaction of the caller: what it changes holds for all.
"""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Unpack
from uuid import UUID

from watchbill.app.producer import JobProducer
from watchbill.client import alert_operations
from watchbill.client.alert_operations import Matching
from watchbill.model.alert_records import (
    AlertDelivery,
    AlertRecord,
    AlertRouteRecord,
    AlertRuleRecord,
    RouteKind,
    RuleChange,
    SilenceRecord,
)
from watchbill.model.durations import Duration


class Alerts:
    """Reads alerts, and changes rules, routes and silences. To change them needs the rights of an operator."""

    def __init__(self, producer: JobProducer) -> None:
        self._producer = producer

    def list(self, *, since: datetime | None = None, rule: str | None = None) -> builtins.list[AlertRecord]:
        """The open alerts, those that fire first; with `since` also those that have cleared since then."""
        return self._producer.run_apart(alert_operations.alerts(since=since, rule=rule))

    async def alist(self, *, since: datetime | None = None, rule: str | None = None) -> builtins.list[AlertRecord]:
        return await self._producer.arun_apart(alert_operations.alerts(since=since, rule=rule))

    def rules(self) -> builtins.list[AlertRuleRecord]:
        """All rules, each with the values that operators have set for single subjects after it."""
        return self._producer.run_apart(alert_operations.rules())

    async def arules(self) -> builtins.list[AlertRuleRecord]:
        return await self._producer.arun_apart(alert_operations.rules())

    def set(self, rule: str, subject: str = "", **change: Unpack[RuleChange]) -> None:
        """Changes `above`, `lasting`, `severity` or `is_enabled` of a rule, for all subjects or for one."""
        return self._producer.run_apart(alert_operations.set_rule(rule, subject, **change))

    async def aset(self, rule: str, subject: str = "", **change: Unpack[RuleChange]) -> None:
        return await self._producer.arun_apart(alert_operations.set_rule(rule, subject, **change))

    def reset(self, rule: str, subject: str = "") -> bool:
        """Gives a rule its default values again. False if nothing was changed."""
        return self._producer.run_apart(alert_operations.reset_rule(rule, subject))

    async def areset(self, rule: str, subject: str = "") -> bool:
        return await self._producer.arun_apart(alert_operations.reset_rule(rule, subject))

    def routes(self) -> builtins.list[AlertRouteRecord]:
        """Where alerts are sent, with how the last message ended."""
        return self._producer.run_apart(alert_operations.routes())

    async def aroutes(self) -> builtins.list[AlertRouteRecord]:
        return await self._producer.arun_apart(alert_operations.routes())

    def set_route(
        self,
        name: str,
        kind: RouteKind,
        target: str | None = None,
        *,
        secret: str | None = None,
        matcher: Matching | None = None,
        is_enabled: bool = True,
    ) -> None:
        """Creates or replaces a route. `target` is an address, mail addresses, the name of a command, or a
        reference (`env:NAME`, `file:PATH`); `secret` is a reference. `matcher` says which alerts it takes:
        `{"severity": "critical"}`."""
        return self._producer.run_apart(
            alert_operations.set_route(name, kind, target, secret=secret, matcher=matcher, is_enabled=is_enabled)
        )

    async def aset_route(
        self,
        name: str,
        kind: RouteKind,
        target: str | None = None,
        *,
        secret: str | None = None,
        matcher: Matching | None = None,
        is_enabled: bool = True,
    ) -> None:
        return await self._producer.arun_apart(
            alert_operations.set_route(name, kind, target, secret=secret, matcher=matcher, is_enabled=is_enabled)
        )

    def remove_route(self, name: str) -> bool:
        """Removes a route. False if there was none."""
        return self._producer.run_apart(alert_operations.remove_route(name))

    async def aremove_route(self, name: str) -> bool:
        return await self._producer.arun_apart(alert_operations.remove_route(name))

    def test_route(self, name: str) -> UUID:
        """Has a node send a test to a route. Returns the id of the delivery."""
        return self._producer.run_apart(alert_operations.test_route(name))

    async def atest_route(self, name: str) -> UUID:
        return await self._producer.arun_apart(alert_operations.test_route(name))

    def deliveries(
        self, *, alert: int | None = None, route: str | None = None, id: UUID | None = None
    ) -> builtins.list[AlertDelivery]:
        """The messages of an alert, to a route, or one, the newest first."""
        return self._producer.run_apart(alert_operations.deliveries(alert=alert, route=route, id=id))

    async def adeliveries(
        self, *, alert: int | None = None, route: str | None = None, id: UUID | None = None
    ) -> builtins.list[AlertDelivery]:
        return await self._producer.arun_apart(alert_operations.deliveries(alert=alert, route=route, id=id))

    def silences(self, *, ended: bool = False) -> builtins.list[SilenceRecord]:
        """The silences in force; with `ended` also those of the last week."""
        return self._producer.run_apart(alert_operations.silences(ended=ended))

    async def asilences(self, *, ended: bool = False) -> builtins.list[SilenceRecord]:
        return await self._producer.arun_apart(alert_operations.silences(ended=ended))

    def silence(
        self,
        matcher: Matching,
        *,
        lasting: Duration | None = None,
        until: datetime | None = None,
        reason: str | None = None,
    ) -> int:
        """Keeps alerts back that fit the matcher, for `lasting` or until `until`. Returns its id."""
        return self._producer.run_apart(
            alert_operations.add_silence(matcher, lasting=lasting, until=until, reason=reason)
        )

    async def asilence(
        self,
        matcher: Matching,
        *,
        lasting: Duration | None = None,
        until: datetime | None = None,
        reason: str | None = None,
    ) -> int:
        return await self._producer.arun_apart(
            alert_operations.add_silence(matcher, lasting=lasting, until=until, reason=reason)
        )

    def end_silence(self, id: int) -> bool:
        """Ends a silence now. False if it was not in force."""
        return self._producer.run_apart(alert_operations.end_silence(id))

    async def aend_silence(self, id: int) -> bool:
        return await self._producer.arun_apart(alert_operations.end_silence(id))
