"""Who asks: a name, a role and perhaps a tenant. Every page and every endpoint names the role that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from watchbill.model.schedule import FLOW

Role = Literal["reader", "producer", "worker", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

# Which roles may do what needs this role.
_SUFFICIENT: dict[Role, frozenset[Role]] = {
    "reader": frozenset(ROLES),
    "producer": frozenset({"producer", "operator", "admin"}),
    "worker": frozenset({"worker"}),
    "operator": frozenset({"operator", "admin"}),
    "admin": frozenset({"admin"}),
}
# What the database knows of a role. What only admins may do, the web checks alone.
_DATABASE_ROLES: dict[Role, str] = {
    "reader": "reader",
    "producer": "producer",
    "worker": "worker",
    "operator": "operator",
    "admin": "operator",
}
_ROLES_OF_TENANTS = ("reader", "producer")  # in the database an operator sees all tenants


@dataclass(frozen=True)
class Identity:
    """Who asks. `tenant` is None for those that see all tenants.

    `queues` and `types` are the only ones that a producer may use; empty for all. `key` is the public part of the API
    key with which the caller came, and `rate` how many requests a second that key has.
    """

    name: str
    role: Role
    tenant: str | None = None
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    key: str | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role={self.role!r} is invalid: it can be {', '.join(ROLES)}")
        if self.tenant is not None and self.role not in _ROLES_OF_TENANTS:
            raise ValueError(f"{self.name!r} is bound to a tenant, so its role can be {' or '.join(_ROLES_OF_TENANTS)}")
        if not self.name or self.tenant == "" or "\0" in self.name + (self.tenant or ""):
            raise ValueError("an identity has a name, and its tenant is a name or None, without NUL")

    def may(self, needed: Role) -> bool:
        """Whether it may do what needs this role."""
        return self.role in _SUFFICIENT[needed]

    @property
    def database_role(self) -> str:
        """The kind of group role with which it changes something."""
        return _DATABASE_ROLES[self.role]

    def may_use(self, type: str, queue: str) -> bool:
        """Whether it may make and change jobs of this type in this queue. The steps of a chain may be in any queue."""
        in_queue = not self.queues or (queue in self.queues and type != FLOW)
        return in_queue and (not self.types or type in self.types)

    def as_reader(self) -> Identity:
        """The same person on a server that only shows."""
        return Identity(self.name, "reader", self.tenant, key=self.key, rate=self.rate)
