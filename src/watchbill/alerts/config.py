"""What a node needs to send alerts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watchbill.redaction import Redaction
from watchbill.settings import Settings


@dataclass(frozen=True)
class AlertConfig:
    commands: Mapping[str, str] = field(default_factory=dict)
    smtp_url: str | None = None
    smtp_from: str | None = None
    references: tuple[str, ...] = ()  # to addresses and secrets, which this node resolves
    redaction: Redaction = field(default_factory=Redaction)
    installation: str = "watchbill"  # how texts call the installation

    @classmethod
    def of_settings(cls, settings: Settings) -> AlertConfig:
        return cls(
            commands=dict(settings.alert_commands),
            smtp_url=settings.smtp_url,
            smtp_from=settings.smtp_from,
            references=settings.connector_secrets,
            redaction=Redaction(settings.redact, settings.redact_text),
            installation=settings.dashboard_name or settings.schema,
        )

    @property
    def abilities(self) -> list[str]:
        """What this node can send, for `_claim_alert_deliveries`: kinds of routes, and commands by name."""
        mail = ["mail"] if self.smtp_url and self.smtp_from else []
        return ["webhook", "slack", "log", *mail, *(f"command:{name}" for name in self.commands)]
