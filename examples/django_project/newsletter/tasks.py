"""Django 6's own tasks: nothing in this file knows Watchbill."""

from django.tasks import task


@task(priority=10)
def send_letter(to: str) -> str:
    return f"sent to {to}"
