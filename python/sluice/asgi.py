"""Sells routes of an ASGI application (FastAPI, Starlette) through Sluice's facilitator, by x402 in both versions.

A payment is verified, the application answers, the answer is held back, and the payment is settled if the answer is good (2xx). Only
then is it sent: charged and served are both or neither.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Any, Protocol

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Price = str | None | Callable[[Scope], "str | None"]

MAX_HELD = 10_000_000
TOKEN_S = 86_400
RETRIES = 2
_AGAIN_S = 5
_NAMES_V1 = {"eip155:8453": "base", "eip155:84532": "base-sepolia"}
_EXPOSED = "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Sluice-Retry-Token, Retry-After"


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


class _Answer(Exception):
    """A whole answer of the middleware, in place of the application's."""

    def __init__(self, status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.body = json.dumps(body).encode()
        plain = {"content-type": "application/json", "cache-control": "no-store"}
        self.headers = {**plain, "access-control-expose-headers": _EXPOSED, **(headers or {})}


class Charge:
    """The middleware.

    `prices` names the routes by method and path, such as `{"GET /weather": "0.05"}`; a price is text in whole tokens, or a function of
    the ASGI scope that returns it, and None is free. A path that ends in `/*` stands for all below it. `pay_to` is the seller's address.
    """

    def __init__(
        self,
        app: Any,
        *,
        prices: Mapping[str, Price],
        pay_to: str,
        base_url: str | None = None,
        api_key: str | None = None,
        network: str | None = None,
        store: Store | None = None,
        timeout_seconds: float = 90,
    ) -> None:
        self.app = app
        self.prices = dict(prices)
        self.pay_to = pay_to
        self.base_url = (base_url or os.environ.get("SLUICE_URL", "")).rstrip("/")
        self.api_key = api_key or os.environ.get("SLUICE_API_KEY", "")
        if not self.base_url or not self.api_key:
            raise TypeError("Give base_url and api_key, or set SLUICE_URL and SLUICE_API_KEY: nothing is sold without them.")
        for name, price in self.prices.items():
            if isinstance(price, str) and not Decimal(price) >= 0:
                raise TypeError(f"{name}: {price} is no price")
        self.network = network
        self.store = store or MemoryStore()
        self.timeout = timeout_seconds
        self._asset: dict[str, Any] | None = None
        self._checked_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        price = self._price_of(scope) if scope["type"] == "http" else None
        if price is None:
            await self.app(scope, receive, send)
            return
        try:
            await self._sell(scope, receive, send, price)
        except _Answer as answer:
            await _send(send, answer.status, list(answer.headers.items()), answer.body)

    def _price_of(self, scope: Scope) -> str | None:
        # HEAD is answered as GET by most frameworks.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        path = scope["path"]
        for name, price in self.prices.items():
            wanted, _, pattern = name.partition(" ")
            below = pattern.endswith("/*") and path.startswith(pattern[:-1])
            # A framework may serve a path with a slash at its end too.
            if wanted in (method, "*") and (below or path.rstrip("/") == pattern.rstrip("/")):
                return price(scope) if callable(price) else price
        return None

    async def _sell(self, scope: Scope, receive: Receive, send: Send, price: str) -> None:
        terms, sold = await self._terms(scope, price)
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
        url = f"{scope['method']} {scope['path']}?{scope['query_string'].decode()}"
        token = headers.get("sluice-retry-token")
        if token is not None:
            key, payload = self._read_token(token, url, terms)
        else:
            text = headers.get("payment-signature") or headers.get("x-payment")
            if text is None or scope["method"] == "HEAD":
                raise _ask(terms, sold, "Payment is required.")
            key, payload = str(uuid.uuid4()), _decode(text)
        paying = _Paying(key, payload, _terms_for(payload, terms, sold), terms, sold, url)
        if token is None:
            await self._verify(paying)
            status, start, body = await self._run(scope, receive)
            if 200 <= status < 300:
                start = start + list((await self._settle(paying)).items())
            await _send(send, status, start, body)
            return
        # Already sent to be settled: the call is free once it is, and until it was served.
        if not self.store.take(f"sluice:{key}", TOKEN_S):
            raise _Answer(409, {"error": "PAYMENT_ALREADY_SERVED", "message": "What was paid for was served before."})
        served = False
        try:
            more = await self._settle(paying)
            status, start, body = await self._run(scope, receive)
            served = 200 <= status < 300
            extra = {} if served else {"sluice-retry-token": token}
            await _send(send, status, start + list({**more, **extra}.items()), body)
        finally:
            if not served:
                self.store.drop(f"sluice:{key}")

    async def _run(self, scope: Scope, receive: Receive) -> tuple[int, list[tuple[str, str]], bytes]:
        """Runs the application and keeps its answer. An application that raises, raises here: nothing is settled."""
        start: dict[str, Any] = {}
        chunks: list[bytes] = []
        is_whole = False

        async def keep(message: dict[str, Any]) -> None:
            nonlocal is_whole
            if message["type"] == "http.response.start":
                start.update(message)
            elif message["type"] == "http.response.body":
                chunks.append(bytes(message.get("body", b"")))
                is_whole = not message.get("more_body", False)
                if sum(map(len, chunks)) > MAX_HELD:
                    raise _Answer(500, {"error": "ANSWER_TOO_LARGE", "message": "The answer is too large to sell. Nothing was paid."})

        await self.app(scope, receive, keep)
        if not start or not is_whole:
            raise _Answer(500, {"error": "ANSWER_BROKEN_OFF", "message": "The application gave no whole answer. Nothing was paid."})
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", [])]
        return start["status"], headers, b"".join(chunks)

    async def _terms(self, scope: Scope, price: str) -> tuple[dict[str, Any], dict[str, str]]:
        asset = await self._ready()
        amount = Decimal(price).scaleb(asset["decimals"])
        if amount != int(amount):
            raise TypeError(f"{price} has more than {asset['decimals']} decimals")
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"host"), "localhost")
        query = scope["query_string"].decode()
        url = f"{scope.get('scheme', 'http')}://{host}{scope['path']}{'?' + query if query else ''}"
        terms = {
            "scheme": "exact",
            "network": asset["network"],
            "amount": str(int(amount)),
            "asset": asset["asset"],
            "payTo": self.pay_to,
            "maxTimeoutSeconds": 60,
            "extra": {"name": asset["name"], "version": asset["version"]},
        }
        return terms, {"url": url, "description": "", "mimeType": "application/json"}

    async def ready(self) -> None:
        """Raises RuntimeError with what is wrong with the service; until this passes, every priced call is refused."""
        heard = await self._call("GET", "/x402/supported")
        kinds = heard[1].get("kinds") if heard and heard[0] == 200 else None
        found = [
            kind
            for kind in kinds or []
            if kind.get("x402Version") == 2 and kind.get("extra") and kind["network"] == (self.network or kind["network"])
        ]
        if not found:
            raise RuntimeError(f"{self.base_url} is no Sluice that settles payments here: {heard}")
        probe = await self._call("POST", "/x402/verify", {"x402Version": 2, "paymentPayload": {}, "paymentRequirements": {}})
        if not probe or probe[0] != 200 or probe[1].get("isValid") is not False:
            raise RuntimeError(f"The service refuses the API key: {probe}")
        self._asset = {"network": found[0]["network"], **found[0]["extra"]}

    async def _ready(self) -> dict[str, Any]:
        if self._asset is None and time.time() - self._checked_at > _AGAIN_S:
            try:
                await self.ready()
            except RuntimeError:
                self._checked_at = time.time()
        if self._asset is None:
            raise _unavailable("Payments can't be taken now. Nothing was paid.")
        return self._asset

    async def _verify(self, paying: _Paying) -> None:
        heard = await self._call("POST", "/x402/verify", paying.body())
        if not heard or heard[0] != 200 or not isinstance(heard[1].get("isValid"), bool):
            raise _unavailable("The payment can't be verified now, and nothing was paid.")
        if not heard[1]["isValid"]:
            raise _ask(paying.terms2, paying.sold, f"{heard[1].get('invalidReason')}", f"{heard[1].get('invalidMessage')}")

    async def _settle(self, paying: _Paying) -> dict[str, str]:
        """Settles, and returns the header that says so. By its key it can be asked again: the first answer is repeated."""
        answer = await self._ask_settle(paying)
        authorization = paying.payload["payload"]["authorization"]
        path = f"/x402/settlements/{authorization['from']}/{authorization['nonce']}"
        if answer is None:
            # No answer came: what became of it is asked before the buyer is told.
            heard = await self._call("GET", path)
            if heard and heard[0] == 200 and heard[1].get("status") == "failed":
                raise _ask(paying.terms2, paying.sold, "settlement_failed", f"{heard[1].get('message')}")
            if heard and heard[0] == 200 and heard[1].get("status") == "settled":
                answer = await self._ask_settle(paying)
        if answer and answer.get("success") is True:
            name = "x-payment-response" if paying.payload["x402Version"] == 1 else "payment-response"
            return {name: _encode(answer)}
        if answer and answer.get("errorReason") != "settlement_pending":
            raise _ask(paying.terms2, paying.sold, f"{answer.get('errorReason')}", f"{answer.get('errorMessage')}")
        message = "The payment is being carried out. Do not pay again: repeat this request with the Sluice-Retry-Token of this answer."
        token = {"sluice-retry-token": self._make_token(paying), "retry-after": "2"}
        raise _Answer(202, {"status": "settlement_pending", "message": message}, token)

    async def _ask_settle(self, paying: _Paying) -> dict[str, Any] | None:
        heard = await self._call("POST", "/x402/settle", paying.body(), {"idempotency-key": paying.key})
        return heard[1] if heard and heard[0] == 200 else None

    def _mac(self, text: str) -> str:
        key = hashlib.sha256(f"sluice retry token {self.api_key}".encode()).digest()
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    def _make_token(self, paying: _Paying) -> str:
        until = int(time.time()) + TOKEN_S
        text = _encode([paying.key, paying.payload, paying.terms2, paying.url, until])
        return f"{text}.{self._mac(text)}"

    def _read_token(self, token: str, url: str, terms: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        text, _, mac = token.partition(".")
        if hmac.compare_digest(self._mac(text).encode(), mac.encode()):
            key, payload, signed_terms, signed_url, until = json.loads(base64.b64decode(text))
            if signed_url == url and signed_terms == terms and until > time.time():
                return key, payload
        message = "Sluice-Retry-Token is not valid for this request: send the request that it was given for, within 24 hours."
        raise _Answer(400, {"error": "INVALID_RETRY_TOKEN", "message": message})

    async def _call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]] | None:
        """None if no whole answer in JSON came, after some tries."""
        for left in range(RETRIES, -1, -1):
            heard = await asyncio.to_thread(self._send, method, path, body, headers or {})
            if heard and heard[0] < 500 and heard[0] != 429 or left == 0:
                return heard
            await asyncio.sleep(0.3)
        return None

    def _send(self, method: str, path: str, body: Any, more: Mapping[str, str]) -> tuple[int, dict[str, Any]] | None:
        data = None if body is None else json.dumps(body).encode()
        headers = {"accept": "application/json", "content-type": "application/json", "x-api-key": self.api_key, **more}
        request = urllib.request.Request(self.base_url + path, data=data, headers=headers, method=method)
        try:
            try:
                with _opener.open(request, timeout=self.timeout) as response:
                    status, text = response.status, response.read()
            except urllib.error.HTTPError as error:
                status, text = error.code, error.read()
            found = json.loads(text)
            return (status, found) if isinstance(found, dict) else None
        except (OSError, ValueError, EOFError) as error:
            _ = error
            return None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key elsewhere, and a page that answers 200 to everything is no facilitator."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


class _Paying:
    """One call that is paid for."""

    def __init__(
        self,
        key: str,
        payload: dict[str, Any],
        terms: dict[str, Any],
        terms2: dict[str, Any],
        sold: dict[str, str],
        url: str,
    ) -> None:
        self.key, self.payload, self.terms, self.terms2, self.sold, self.url = key, payload, terms, terms2, sold, url

    def body(self) -> dict[str, Any]:
        version = self.payload["x402Version"]
        return {"x402Version": version, "paymentPayload": self.payload, "paymentRequirements": self.terms}


def _decode(text: str) -> dict[str, Any]:
    try:
        payload = json.loads(base64.b64decode(text, validate=True))
        authorization = payload["payload"]["authorization"]
        if payload["x402Version"] in (1, 2) and all(isinstance(authorization[name], str) for name in ("from", "nonce")):
            return payload
    except (ValueError, KeyError, TypeError):
        pass
    raise _Answer(400, {"error": "INVALID_PAYMENT", "message": "The payment header can't be read."})


def _encode(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def _terms_for(payload: dict[str, Any], terms: dict[str, Any], sold: dict[str, str]) -> dict[str, Any]:
    if payload["x402Version"] == 2:
        return terms
    found = _terms_v1(terms, sold)
    if found is None:
        raise _Answer(400, {"error": "INVALID_PAYMENT", "message": "Version 1 has no name for this network."})
    return found


def _terms_v1(terms: dict[str, Any], sold: dict[str, str]) -> dict[str, Any] | None:
    name = _NAMES_V1.get(terms["network"])
    if name is None:
        return None
    shared = {key: value for key, value in terms.items() if key not in ("amount", "network")}
    described = {"resource": sold["url"], "description": sold["description"], "mimeType": sold["mimeType"]}
    return {**shared, **described, "network": name, "maxAmountRequired": terms["amount"]}


def _ask(terms: dict[str, Any], sold: dict[str, str], error: str, message: str | None = None) -> _Answer:
    v1 = _terms_v1(terms, sold)
    v2 = {"x402Version": 2, "error": error, "resource": sold, "accepts": [terms]}
    body = {"x402Version": 1, "error": error, "message": message or error, "accepts": [v1] if v1 else []}
    return _Answer(402, body, {"payment-required": _encode(v2)})


def _unavailable(message: str) -> _Answer:
    return _Answer(503, {"error": "PAYMENTS_UNAVAILABLE", "message": message}, {"retry-after": "5"})


async def _send(send: Send, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    kept = [(name, value) for name, value in headers if name.lower() not in ("content-length", "transfer-encoding")]
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in kept]
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": raw + length})
    await send({"type": "http.response.body", "body": body})
