"""The AppConfig that Django loads for an entry "watchbill.integrations.django" in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks
from django.core.signals import setting_changed
from django.db.models.signals import post_migrate


class WatchbillConfig(AppConfig):
    name = "watchbill.integrations.django"
    label = "watchbill"
    verbose_name = "Watchbill"

    def ready(self) -> None:
        from watchbill.errors import set_command
        from watchbill.integrations.django import hooks

        set_command("manage.py watchbill")
        checks.register(hooks.check_settings)
        post_migrate.connect(hooks.after_migrate, sender=self)
        setting_changed.connect(hooks.after_setting_changed)
