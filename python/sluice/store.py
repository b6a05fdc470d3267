"""Where retry tokens that were used are remembered."""

from __future__ import annotations

import time
from typing import Protocol


class Store(Protocol):
    """Remembers which retry tokens were used. Several processes need one that they share."""

    def take(self, name: str, seconds: int) -> bool:
        """Takes a name, and answers whether nobody held it: atomically, as `SET name 1 NX EX seconds` does."""

    def drop(self, name: str) -> None:
        """Gives a name back."""


class MemoryStore:
    """A store in this process: its names end with it."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}

    def take(self, name: str, seconds: int) -> bool:
        now = time.time()
        self._ends = {other: end for other, end in self._ends.items() if end > now}
        if name in self._ends:
            return False
        self._ends[name] = now + seconds
        return True

    def drop(self, name: str) -> None:
        self._ends.pop(name, None)
