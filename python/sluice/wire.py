"""x402 on the wire, in both versions: what a 402 asks for, what a buyer sends, and answers of the middleware's own."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_NAMES_V1 = {"eip155:8453": "base", "eip155:84532": "base-sepolia"}
_EXPOSED = "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Sluice-Retry-Token, Retry-After"
# That a client may name its payment, by which it gets a lost answer again.
_NAMED = {
    "info": {"required": False},
    "schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "required": {"type": "boolean"},
            "id": {"type": "string", "minLength": 16, "maxLength": 128, "pattern": "^[a-zA-Z0-9_-]+$"},
        },
        "required": ["required"],
    },
}


class Refusal(Exception):
    """A whole answer of the middleware, in place of the application's."""

    def __init__(self, status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.body = json.dumps(body).encode()
        plain = {"content-type": "application/json", "cache-control": "no-store"}
        self.headers = {**plain, "access-control-expose-headers": _EXPOSED, **(headers or {})}


class Paying:
    """One call that is paid for."""

    def __init__(
        self,
        key: str,
        payload: dict[str, Any],
        terms: dict[str, Any],
        terms2: dict[str, Any],
        sold: dict[str, str],
        url: str,
        name: str | None,
    ) -> None:
        self.key, self.payload, self.terms, self.terms2, self.sold, self.url = key, payload, terms, terms2, sold, url
        self.name = name

    def body(self) -> dict[str, Any]:
        version = self.payload["x402Version"]
        return {"x402Version": version, "paymentPayload": self.payload, "paymentRequirements": self.terms}


def decode_payment(text: str) -> dict[str, Any]:
    try:
        payload = json.loads(base64.b64decode(text, validate=True))
        authorization = payload["payload"]["authorization"]
        if payload["x402Version"] in (1, 2) and all(isinstance(authorization[name], str) for name in ("from", "nonce")):
            return payload
    except (ValueError, KeyError, TypeError):
        pass
    raise Refusal(400, {"error": "INVALID_PAYMENT", "message": "The payment header can't be read."})


def encode(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def terms_for(payload: dict[str, Any], terms: dict[str, Any], sold: dict[str, str]) -> dict[str, Any]:
    if payload["x402Version"] == 2:
        return terms
    found = _terms_v1(terms, sold)
    if found is None:
        raise Refusal(400, {"error": "INVALID_PAYMENT", "message": "Version 1 has no name for this network."})
    return found


def _terms_v1(terms: dict[str, Any], sold: dict[str, str]) -> dict[str, Any] | None:
    name = _NAMES_V1.get(terms["network"])
    if name is None:
        return None
    shared = {key: value for key, value in terms.items() if key not in ("amount", "network")}
    described = {"resource": sold["url"], "description": sold["description"], "mimeType": sold["mimeType"]}
    return {**shared, **described, "network": name, "maxAmountRequired": terms["amount"]}


def ask_payment(terms: dict[str, Any], sold: dict[str, str], error: str, message: str | None = None) -> Refusal:
    v1 = _terms_v1(terms, sold)
    extensions = {"payment-identifier": _NAMED}
    v2 = {"x402Version": 2, "error": error, "resource": sold, "accepts": [terms], "extensions": extensions}
    body = {"x402Version": 1, "error": error, "message": message or error, "accepts": [v1] if v1 else []}
    return Refusal(402, body, {"payment-required": encode(v2)})


def unavailable(message: str) -> Refusal:
    return Refusal(503, {"error": "PAYMENTS_UNAVAILABLE", "message": message}, {"retry-after": "5"})


async def send_whole(send: Send, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    kept = [(name, value) for name, value in headers if name.lower() not in ("content-length", "transfer-encoding")]
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in kept]
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": raw + length})
    await send({"type": "http.response.body", "body": body})
