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
import logging
import os
import re
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from .paid_answers import Answer, PaidAnswers, name_of
from .store import MemoryStore, Store
from .wire import (
    Paying,
    Receive,
    Refusal,
    Scope,
    Send,
    ask_payment,
    decode_payment,
    encode,
    send_whole,
    terms_for,
    unavailable,
)

Price = str | None | Callable[[Scope], "str | None"]

MAX_HELD = 10_000_000
TOKEN_S = 86_400
RETRIES = 2
_AGAIN_S = 5
_log = logging.getLogger("sluice")


class BrokenOff(Exception):
    """The answer broke off after its start: the server breaks the connection."""


class Charge:
    """The middleware.

    `settle` is "after" by default: the answer is held back until its payment is settled. With "before" the payment is settled first, so
    that the application may stream; if it fails, its answer has a `Sluice-Retry-Token`, with which the same call costs nothing.

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
        settle: str = "after",
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
        if not re.fullmatch("0x[0-9a-fA-F]{40}", pay_to):
            raise TypeError("pay_to must be an address: 0x and 40 digits.")
        for name, price in self.prices.items():
            if isinstance(price, str) and not Decimal(price) >= 0:
                raise TypeError(f"{name}: {price} is no price")
        if settle not in ("after", "before"):
            raise TypeError('settle is "after" or "before"')
        self.network = network
        self.settle = settle
        self.store = store or MemoryStore()
        self.timeout = timeout_seconds
        self._answers = PaidAnswers(TOKEN_S)
        self._asset: dict[str, Any] | None = None
        self._checked_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        price = self._price_of(scope) if scope["type"] == "http" else None
        if price is None:
            await self.app(scope, receive, send)
            return
        try:
            await self._sell(scope, receive, send, price)
        except Refusal as answer:
            await send_whole(send, answer.status, list(answer.headers.items()), answer.body)

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
                raise ask_payment(terms, sold, "Payment is required.")
            key, payload = str(uuid.uuid4()), decode_payment(text)
        # A body can't be read here without taking it from the application: the answer to a payment is for its method and address.
        name = name_of(payload, [url, terms]) if token is None else key
        earlier = await self._answers.find(name)
        # The answer to a token is another than that token.
        if earlier and not (token is not None and earlier[0] == 202):
            await send_whole(send, *earlier)
            return
        paying = Paying(key, payload, terms_for(payload, terms, sold), terms, sold, url, name)
        if token is None and self.settle == "after":
            await self._verify(paying)
            await send_whole(send, *await self._conclude(paying, await self._run(scope, receive)))
        else:
            await self._serve(scope, receive, send, paying)

    async def _conclude(self, paying: Paying, answer: Answer) -> Answer:
        """Settles a good answer of the application, and returns it with the header that says so."""
        status, start, body = answer
        if not 200 <= status < 300:
            return answer
        # The same payer's first request, whose connection broke while this one ran.
        earlier = await self._answers.find(paying.name)
        if earlier:
            return earlier
        self._answers.begin(paying.name)
        kept: Answer | None = None
        try:
            kept = (status, start + list((await self._settle(paying)).items()), body)
            return kept
        except Refusal as refusal:
            if refusal.status == 202:
                kept = (refusal.status, list(refusal.headers.items()), refusal.body)
            raise
        finally:
            self._answers.end(paying.name, kept)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, paying: Paying) -> None:
        """Settles, and lets the application run: if it fails, the payer may call again."""
        if not self.store.take(f"sluice:{paying.key}", TOKEN_S):
            raise Refusal(409, {"error": "PAYMENT_ALREADY_SERVED", "message": "What was paid for was served before."})
        served = False
        try:
            more = await self._settle(paying)
            token = {"sluice-retry-token": self._make_token(paying)}
            self._answers.begin(paying.name)
            pending = self._pending(paying)
            kept: Answer = (pending.status, list(pending.headers.items()), pending.body)
            try:
                if self.settle == "before":
                    served = await self._stream(scope, receive, send, more, token)
                else:
                    status, start, body = await self._run(scope, receive)
                    served = 200 <= status < 300
                    answer = (status, start + list({**more, **({} if served else token)}.items()), body)
                    kept = answer if served else kept
                    await send_whole(send, *answer)
            except Exception as error:
                if served or isinstance(error, BrokenOff):
                    raise
                if not isinstance(error, Refusal):
                    _log.exception("The application failed on a call that is paid for")
                message = "The call failed. It costs nothing to repeat it with the token."
                raise Refusal(500, {"error": "HANDLER_FAILED", "message": message}, {**more, **token}) from error
            finally:
                self._answers.end(paying.name, kept)
        finally:
            if not served:
                self.store.drop(f"sluice:{paying.key}")

    async def _stream(
        self, scope: Scope, receive: Receive, send: Send, more: dict[str, str], token: dict[str, str]
    ) -> bool:
        """Sends the application's answer as it comes, and answers whether it was good and whole."""
        status = 0
        is_whole = False

        async def follow(message: dict[str, Any]) -> None:
            nonlocal status, is_whole
            if message["type"] == "http.response.start":
                status = message["status"]
                extra = more if 200 <= status < 300 else {**more, **token}
                raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in extra.items()]
                message = {**message, "headers": [*message.get("headers", []), *raw]}
            await send(message)
            if message["type"] == "http.response.body":
                is_whole = not message.get("more_body", False)

        try:
            await self.app(scope, receive, follow)
        except Exception as error:
            if status:
                raise BrokenOff from error
            raise
        if status and not is_whole:
            raise BrokenOff
        if not status:
            raise RuntimeError("The application gave no answer.")
        return 200 <= status < 300

    async def _run(self, scope: Scope, receive: Receive) -> Answer:
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
                    raise Refusal(500, {"error": "ANSWER_TOO_LARGE", "message": "The answer is too large to sell. Nothing was paid."})

        await self.app(scope, receive, keep)
        if not start or not is_whole:
            raise Refusal(500, {"error": "ANSWER_BROKEN_OFF", "message": "The application gave no whole answer. Nothing was paid."})
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
            raise unavailable("Payments can't be taken now. Nothing was paid.")
        return self._asset

    async def _verify(self, paying: Paying) -> None:
        heard = await self._call("POST", "/x402/verify", paying.body())
        if not heard or heard[0] != 200 or not isinstance(heard[1].get("isValid"), bool):
            raise unavailable("The payment can't be verified now, and nothing was paid.")
        if not heard[1]["isValid"]:
            raise ask_payment(paying.terms2, paying.sold, f"{heard[1].get('invalidReason')}", f"{heard[1].get('invalidMessage')}")

    async def _settle(self, paying: Paying) -> dict[str, str]:
        """Settles, and returns the header that says so. By its key it can be asked again: the first answer is repeated."""
        answer = await self._ask_settle(paying)
        authorization = paying.payload["payload"]["authorization"]
        path = f"/x402/settlements/{authorization['from']}/{authorization['nonce']}"
        if answer is None:
            # No answer came: what became of it is asked before the buyer is told.
            heard = await self._call("GET", path)
            if heard and heard[0] == 200 and heard[1].get("status") == "failed":
                raise ask_payment(paying.terms2, paying.sold, "settlement_failed", f"{heard[1].get('message')}")
            if heard and heard[0] == 200 and heard[1].get("status") == "settled":
                answer = await self._ask_settle(paying)
        if answer and answer.get("success") is True:
            name = "x-payment-response" if paying.payload["x402Version"] == 1 else "payment-response"
            return {name: encode(answer)}
        if answer and answer.get("errorReason") != "settlement_pending":
            raise ask_payment(paying.terms2, paying.sold, f"{answer.get('errorReason')}", f"{answer.get('errorMessage')}")
        raise self._pending(paying)

    def _pending(self, paying: Paying) -> Refusal:
        message = "The payment is being carried out. Do not pay again: repeat this request with the Sluice-Retry-Token of this answer."
        token = {"sluice-retry-token": self._make_token(paying), "retry-after": "2"}
        return Refusal(202, {"status": "settlement_pending", "message": message}, token)

    async def _ask_settle(self, paying: Paying) -> dict[str, Any] | None:
        heard = await self._call("POST", "/x402/settle", paying.body(), {"idempotency-key": paying.key})
        return heard[1] if heard and heard[0] == 200 else None

    def _mac(self, text: str) -> str:
        key = hashlib.sha256(f"sluice retry token {self.api_key}".encode()).digest()
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    def _make_token(self, paying: Paying) -> str:
        until = int(time.time()) + TOKEN_S
        text = encode([paying.key, paying.payload, paying.terms2, paying.url, until])
        return f"{text}.{self._mac(text)}"

    def _read_token(self, token: str, url: str, terms: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        text, _, mac = token.partition(".")
        if hmac.compare_digest(self._mac(text).encode(), mac.encode()):
            key, payload, signed_terms, signed_url, until = json.loads(base64.b64decode(text))
            if signed_url == url and signed_terms == terms and until > time.time():
                return key, payload
        message = "Sluice-Retry-Token is not valid for this request: send it with its original request, within 24 hours."
        raise Refusal(400, {"error": "INVALID_RETRY_TOKEN", "message": message})

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
