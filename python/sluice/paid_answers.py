"""Answers that were paid for, by payment: one that did not arrive is given again to whoever asks with the same payment."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import Any

MAX_BYTES = 50_000_000
_OVERHEAD = 1_000

# Status, headers, body.
Answer = tuple[int, list[tuple[str, str]], bytes]


class PaidAnswers:
    """A store in this process: what it keeps ends with it, or after its seconds."""

    def __init__(self, seconds: int, max_bytes: int = MAX_BYTES) -> None:
        self.seconds, self.max_bytes = seconds, max_bytes
        self._kept: dict[str, tuple[asyncio.Future[Answer | None], float]] = {}
        self._bytes = 0

    async def find(self, name: str | None) -> Answer | None:
        """Waits for an answer that is being paid for; None where none was."""
        kept = self._kept.get(name) if name is not None else None
        return await asyncio.shield(kept[0]) if kept else None

    def begin(self, name: str | None) -> None:
        """Says that a payment is being made: whoever asks waits for `end`."""
        if name is not None:
            self._drop(name)
            self._kept[name] = (asyncio.get_running_loop().create_future(), time.time() + self.seconds)

    def end(self, name: str | None, answer: Answer | None) -> None:
        """Keeps the answer of a payment; None: nothing was paid."""
        if name is None or name not in self._kept or self._kept[name][0].done():
            return
        self._kept[name][0].set_result(answer)
        if answer is None:
            del self._kept[name]
            return
        self._bytes += len(answer[2]) + _OVERHEAD
        for other, (_, until) in list(self._kept.items()):
            if self._bytes <= self.max_bytes and until > time.time():
                break
            self._drop(other)

    def _drop(self, name: str) -> None:
        future, _ = self._kept.pop(name, (None, 0))
        answer = future.result() if future is not None and future.done() else None
        if answer is not None:
            self._bytes -= len(answer[2]) + _OVERHEAD


def name_of(payload: dict[str, Any], request: Any) -> str | None:
    """The name of a payment for one request; None without an id of the payer's own (extension `payment-identifier`).

    All else of a payment can be read on chain once it was settled, and would let a stranger have what was paid for.
    """
    try:
        own = payload["extensions"]["payment-identifier"]["info"]["id"]
    except (KeyError, TypeError):
        return None
    if not isinstance(own, str) or len(own) < 16:
        return None
    return hashlib.sha256(json.dumps([payload, request]).encode()).hexdigest()
