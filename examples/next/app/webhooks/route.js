// POST /webhooks: Sluice's events about the orders.
import { webhooks } from "@sluice/sdk"
import { paid } from "../paid/orders.js"

export async function POST(request) {
  const secret = process.env.WEBHOOK_SECRET
  const event = await webhooks.verify(await request.text(), request.headers, secret).catch(() => undefined)
  if (!event) return new Response(null, { status: 400 })
  if (event.type === "checkout.session.completed") paid.add(event.data.metadata.order)
  return new Response(null, { status: 204 })
}
