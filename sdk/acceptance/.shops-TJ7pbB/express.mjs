// A shop on Express: orders that are paid on Sluice's page, the events about them, and a weather report that agents buy.
import { Sluice, webhooks } from "@sluice/sdk"
import { charge } from "@sluice/sdk/express"
import express from "express"

const { SLUICE_URL, SLUICE_API_KEY, WEBHOOK_SECRET, PAY_TO, PORT } = process.env
const sluice = new Sluice({ baseUrl: SLUICE_URL, apiKey: SLUICE_API_KEY })
const weather = charge({ price: "0.05", payTo: PAY_TO })
const paid = new Set()

const app = express()

app.post("/orders/:order", async (request, response) => {
  const { order } = request.params
  const callbackUrl = `http://127.0.0.1:${PORT}/webhooks`
  const checkout = { amount: "19.90", metadata: { order }, callbackUrl }
  const { url, id } = await sluice.checkouts.create(checkout, { idempotencyKey: `order-${order}` })
  response.json({ url, id })
})

// The raw body: a parsed one has lost the bytes that were signed.
app.post("/webhooks", express.raw({ type: "application/json" }), async (request, response) => {
  const event = await webhooks.verify(request.body, request.headers, WEBHOOK_SECRET).catch(() => undefined)
  if (!event) return response.sendStatus(400)
  if (event.type === "checkout.session.completed") paid.add(event.data.metadata.order)
  response.sendStatus(204)
})

app.get("/paid", (_request, response) => response.json([...paid]))

app.get("/weather", weather, (_request, response) => response.json({ forecast: "sunny" }))

// Nothing is sold where this fails, so the shop does not start.
await weather.ready()
app.listen(Number(PORT), "127.0.0.1")
