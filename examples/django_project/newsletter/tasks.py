"""Tasks of Django 6. This file does not import Watchbill."""

from django.tasks import task


@task(priority=10)
def send_letter(to: str) -> str:
    return f"sent to {to}"
