"""The entry for INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.db.models.signals import post_migrate


class WatchbillConfig(AppConfig):
    name = "watchbill.integrations.django"
    label = "watchbill"
    verbose_name = "Watchbill"

    def ready(self) -> None:
        from watchbill.integrations.django import checks, schema

        checks.register()
        post_migrate.connect(schema.after_migrate, sender=self)
        setting_changed.connect(schema.after_setting_changed)
