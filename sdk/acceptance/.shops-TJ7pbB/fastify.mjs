// A shop on Fastify: orders that are paid on Sluice's page, the events about them, and a weather report that agents buy.
import { Sluice, webhooks } from "@sluice/sdk"
import { charge } from "@sluice/sdk/fastify"
import fastify from "fastify"

const { SLUICE_URL, SLUICE_API_KEY, WEBHOOK_SECRET, PAY_TO, PORT } = process.env
const sluice = new Sluice({ baseUrl: SLUICE_URL, apiKey: SLUICE_API_KEY })
const weather = charge({ price: "0.05", payTo: PAY_TO })
const paid = new Set()

const app = fastify()

app.post("/orders/:order", async request => {
  const { order } = request.params
  const callbackUrl = `http://127.0.0.1:${PORT}/webhooks`
  const checkout = { amount: "19.90", metadata: { order }, callbackUrl }
  const { url, id } = await sluice.checkouts.create(checkout, { idempotencyKey: `order-${order}` })
  return { url, id }
})

app.register(async events => {
  // The raw body, in this scope only: a parsed one has lost the bytes that were signed.
  events.removeAllContentTypeParsers()
  events.addContentTypeParser("*", { parseAs: "buffer" }, async (_request, body) => body)
  events.post("/webhooks", async (request, reply) => {
    const event = await webhooks.verify(request.body, request.headers, WEBHOOK_SECRET).catch(() => undefined)
    if (!event) return reply.code(400).send()
    if (event.type === "checkout.session.completed") paid.add(event.data.metadata.order)
    return reply.code(204).send()
  })
})

app.get("/paid", async () => [...paid])

app.get("/weather", { preHandler: weather }, async () => ({ forecast: "sunny" }))

// Nothing is sold where this fails, so the shop does not start.
await weather.ready()
await app.listen({ port: Number(PORT), host: "127.0.0.1" })
