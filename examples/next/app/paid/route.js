// GET /paid: the orders that were paid.
import { paid } from "./orders.js"

export const dynamic = "force-dynamic"

export const GET = async () => Response.json([...paid])
