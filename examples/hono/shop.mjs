// A shop on Hono: orders that are paid on Sluice's page, the events about them, and a weather report that agents buy.
import { serve } from "@hono/node-server"
import { Sluice, webhooks } from "@sluice/sdk"
import { charge } from "@sluice/sdk/hono"
import { Hono } from "hono"

const { SLUICE_URL, SLUICE_API_KEY, WEBHOOK_SECRET, PAY_TO, PORT } = process.env
const sluice = new Sluice({ baseUrl: SLUICE_URL, apiKey: SLUICE_API_KEY })
const weather = charge({ price: "0.05", payTo: PAY_TO })
const paid = new Set()

const app = new Hono()

app.post("/orders/:order", async context => {
  const order = context.req.param("order")
  const callbackUrl = `http://127.0.0.1:${PORT}/webhooks`
  const checkout = { amount: "19.90", metadata: { order }, callbackUrl }
  const { url, id } = await sluice.checkouts.create(checkout, { idempotencyKey: `order-${order}` })
  return context.json({ url, id })
})

app.post("/webhooks", async context => {
  const { headers } = context.req.raw
  const event = await webhooks.verify(await context.req.text(), headers, WEBHOOK_SECRET).catch(() => undefined)
  if (!event) return context.body(null, 400)
  if (event.type === "checkout.session.completed") paid.add(event.data.metadata.order)
  return context.body(null, 204)
})

app.get("/paid", context => context.json([...paid]))

app.get("/weather", weather, context => context.json({ forecast: "sunny" }))

// Nothing is sold where this fails, so the shop does not start.
await weather.ready()
serve({ fetch: app.fetch, port: Number(PORT), hostname: "127.0.0.1" })
