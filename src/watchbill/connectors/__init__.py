"""Connectors: tasks that send requests and webhooks to other servers. `add_connectors(app)` adds them to an App."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchbill.connectors.tasks import add_connectors
    from watchbill.model.endpoint import Basic, Bearer, Endpoint, SecretHeader, Signature
    from watchbill.model.webhook import Webhook
    from watchbill.webhooks import InvalidSignature, verify_webhook

_MODULES = {
    "add_connectors": "watchbill.connectors.tasks",
    **dict.fromkeys(("Basic", "Bearer", "Endpoint", "SecretHeader", "Signature"), "watchbill.model.endpoint"),
    "Webhook": "watchbill.model.webhook",
    **dict.fromkeys(("InvalidSignature", "verify_webhook"), "watchbill.webhooks"),
}

__all__ = [
    "Basic",
    "Bearer",
    "Endpoint",
    "InvalidSignature",
    "SecretHeader",
    "Signature",
    "Webhook",
    "add_connectors",
    "verify_webhook",
]


def __getattr__(name: str) -> Any:
    """Imports a module at the first use of what it has: a receiver of webhooks needs no HTTP client."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
