// The shops whose framework is here anyway, as they are written, on the SDK's sources. The others: shops.long.ts.
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, it } from "vitest"
import { root } from "../server/test/e2e/program.ts"
import { type Market, openMarket, tryShop } from "./rig.ts"

let market: Market
let folder: string
beforeAll(async () => {
  market = await openMarket()
  // Beside the npm packages, where Node finds these.
  folder = mkdtempSync(join(root, "node_modules/.shops-"))
  const sdk = join(folder, "node_modules/@sluice/sdk")
  mkdirSync(sdk, { recursive: true })
  symlinkSync(join(root, "sdk/src"), join(sdk, "src"))
  const exports = { ".": "./src/index.ts", "./*": "./src/middleware/*.ts" }
  writeFileSync(join(sdk, "package.json"), JSON.stringify({ name: "@sluice/sdk", type: "module", exports }))
})
afterAll(async () => {
  await market?.close()
  rmSync(folder, { recursive: true, force: true })
})

it.each(["express", "fastify"])("the shop on %s takes orders and sells its report", async name => {
  const file = join(folder, `${name}.mjs`)
  cpSync(join(root, "examples", name, "shop.mjs"), file)
  const shop = await market.open([process.execPath, file], folder)
  await tryShop(market, shop.url, shop.payTo)
  await shop.close()
})
