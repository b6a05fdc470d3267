"""Events that Sluice sends: checked against their signature."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

TOLERANCE_S = 300


class SignatureError(Exception):
    """Why a request is not an event of the service."""


def verify(
    body: bytes | str,
    headers: Mapping[str, str],
    secrets: str | Iterable[str],
    *,
    tolerance_seconds: float = TOLERANCE_S,
    now: float | None = None,
) -> dict[str, Any]:
    """Returns the event of a request: its `id`, `type`, `createdAt` and `data`.

    `body` is what was received, byte for byte; `secrets` are the endpoint's secret, and for 24 hours after a roll the one before it.
    Raises SignatureError for anything that the service did not send in the last five minutes, and TypeError for a parsed body.
    A newer service may send names that this version does not know: they are returned like the others.
    """
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise TypeError("Pass the raw body, as bytes or text. A parsed body has lost the bytes that were signed.")
    raw = bytes(body)
    keys = [key for key in ([secrets] if isinstance(secrets, str) else secrets) if key]
    if not keys:
        raise TypeError("Pass the endpoint's secret: it begins with whsec_.")
    header = next((value for name, value in headers.items() if name.lower() == "service-signature"), None)
    if header is None:
        raise SignatureError("The request has no Service-Signature.")
    signed_at, signatures = _parse(header)
    age = abs((time.time() if now is None else now) - signed_at)
    # Written so that NaN is refused too.
    if not age <= tolerance_seconds:
        raise SignatureError("The signature is too far from this machine's time.")
    text = f"{signed_at}.".encode() + raw
    good = False
    for key in keys:
        expected = hmac.new(key.encode(), text, hashlib.sha256).hexdigest()
        for signature in signatures:
            good |= hmac.compare_digest(expected, signature)
    if not good:
        raise SignatureError("No signature fits the body. Check the secret, and that the body is unchanged.")
    return _event(raw)


def _parse(header: str) -> tuple[int, list[str]]:
    parts = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if len(times) != 1 or not re.fullmatch(r"[0-9]{1,12}", times[0]):
        raise SignatureError("Service-Signature has not one time `t`.")
    signatures = [value for name, _, value in parts if name == "v1" and re.fullmatch(r"[0-9a-f]{64}", value)]
    if not signatures:
        raise SignatureError("Service-Signature has no `v1` of 64 hexadecimal digits.")
    return int(times[0]), signatures


def _event(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw.decode())
    except ValueError as error:
        raise SignatureError("The body is signed, and is not JSON.") from error
    names = ("id", "event", "createdAt")
    if not isinstance(body, dict) or not all(isinstance(body.get(name), str) for name in names):
        raise SignatureError("The body is signed, and is not an event.")
    return {"id": body["id"], "type": body["event"], "createdAt": body["createdAt"], "data": body.get("data")}
