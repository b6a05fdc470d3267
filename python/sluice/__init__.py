"""Sluice for Python: `sluice.webhooks` verifies events, and `sluice.asgi` sells routes. Neither needs another package."""

from . import webhooks

__all__ = ["webhooks"]
