"""A shop on FastAPI: orders that are paid on Sluice's page, the events about them, and a weather report that agents buy."""

import os

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response
from sluice import webhooks
from sluice.asgi import Charge

paid: set[str] = set()
app = FastAPI()


@app.post("/orders/{order}")
async def create_order(order: str):
    async with httpx.AsyncClient(base_url=os.environ["SLUICE_URL"]) as sluice:
        answer = await sluice.post(
            "/api/checkouts",
            headers={"x-api-key": os.environ["SLUICE_API_KEY"], "idempotency-key": f"order-{order}"},
            json={
                "amount": "19.90",
                "metadata": {"order": order},
                "callbackUrl": f"http://127.0.0.1:{os.environ['PORT']}/webhooks",
            },
        )
    checkout = answer.raise_for_status().json()
    return {"url": checkout["url"], "id": checkout["id"]}


@app.post("/webhooks")
async def receive_event(request: Request):
    try:
        event = webhooks.verify(await request.body(), request.headers, os.environ["WEBHOOK_SECRET"])
    except webhooks.SignatureError:
        return Response(status_code=400)
    if event["type"] == "checkout.session.completed":
        paid.add(event["data"]["metadata"]["order"])
    return Response(status_code=204)


@app.get("/paid")
async def list_paid():
    return sorted(paid)


@app.get("/weather")
async def weather():
    return {"forecast": "sunny"}


app.add_middleware(Charge, prices={"GET /weather": "0.05"}, pay_to=os.environ["PAY_TO"])
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
