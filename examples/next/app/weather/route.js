// GET /weather: a report that agents buy. Not in middleware.ts: that runs before the route, and can't know whether it succeeded.
import { withCharge } from "@sluice/sdk/next"

export const dynamic = "force-dynamic"

const weather = async () => Response.json({ forecast: "sunny" })

/** Made with the first request: Next runs this file while it builds, too. */
let sold

export async function GET(request, context) {
  sold ??= withCharge(weather, { price: "0.05", payTo: process.env.PAY_TO })
  return await sold(request, context)
}
