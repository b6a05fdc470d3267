// Hono's and FastAPI's shops, whose handlers, connections and network fail at each step: whoever was charged has the content, and
// whoever has the content was charged. Those of Express, Fastify and Next: sdk/test/middleware.test.ts.
import { afterAll, beforeAll, describe } from "vitest"
import { installPackages } from "../../server/test/packages.ts"
import { findPython } from "../../server/test/python.ts"
import { openTrade, type Trade, testSales } from "../test/sales.ts"
import type { Start } from "../test/shops.ts"
import { fastapiShop, honoShop } from "./other-shops.ts"

let trade: Trade
let folder: string
let python: string
beforeAll(async () => {
  folder = await installPackages("sdk/acceptance")
  const found = await findPython("x402", "server/test/x402/requirements.txt")
  if ("missing" in found) throw new Error(found.missing)
  python = found.program
  trade = await openTrade()
})
afterAll(async () => await trade?.sandbox.remove())

const hono: Start = async (...of) => await honoShop(folder)(...of)
const fastapi: Start = async (...of) => await fastapiShop(python)(...of)

describe("on Hono", () => testSales(() => trade, { hono }, ["charge", "paywall"]))
describe("on FastAPI", () => testSales(() => trade, { fastapi }, ["charge"]))
