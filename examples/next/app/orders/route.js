// POST /orders: a checkout for an order, paid on Sluice's page.
import { Sluice } from "@sluice/sdk"

export async function POST(request) {
  const { order } = await request.json()
  const callbackUrl = `http://127.0.0.1:${process.env.PORT}/webhooks`
  const checkout = { amount: "19.90", metadata: { order }, callbackUrl }
  const { url, id } = await new Sluice().checkouts.create(checkout, { idempotencyKey: `order-${order}` })
  return Response.json({ url, id })
}
