// `sluice init`: what it writes, and that a shop that it has written takes an order.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { type Market, openMarket, tryShop } from "../../examples/rig.ts"
import { root } from "../../server/test/e2e/program.ts"
import { starters } from "../src/starters.ts"
import { type Cli, openCli } from "./program.ts"

let market: Market
let cli: Cli
/** Beside the npm packages, where Node finds these. */
let folder: string
beforeAll(async () => {
  market = await openMarket()
  cli = await openCli(market.sandbox, ["checkouts"])
  folder = mkdtempSync(join(root, "node_modules/.init-"))
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

it.each(["express", "fastify"])("the shop on %s starts with its own settings, and takes orders", async framework => {
  const place = join(folder, framework)
  const { missing, next } = await cli.json("init", framework, place)
  expect([missing, next]).toEqual([
    ["WEBHOOK_SECRET", "PAY_TO"],
    ["npm install", "npm start"],
  ])
  const env = readFileSync(join(place, ".env"), "utf8")
  expect(env).toContain(`SLUICE_API_KEY=${cli.apiKey}\n`)
  expect(statSync(join(place, ".env")).mode & 0o777).toBe(0o600)
  expect(readFileSync(join(place, ".gitignore"), "utf8")).toMatch(/^\.env$/m)
  const { scripts } = JSON.parse(readFileSync(join(place, "package.json"), "utf8"))
  expect(scripts.start).toBe("node --env-file=.env shop.mjs")
  // What the person would set; the rest comes from the file. What is set already wins over it.
  const shop = await market.open([process.execPath, "--env-file=.env", "shop.mjs"], place)
  await tryShop(market, shop.url, shop.payTo)
  await shop.close()
})

it.each(Object.keys(starters))("the files for %s are those of the example", async framework => {
  const place = join(folder, `files-${framework}`)
  const { files } = await cli.json("init", framework, place, "--pay-to", `0x${"1".repeat(40)}`)
  for (const [name, text] of Object.entries(starters[framework] ?? {})) {
    expect(files).toContain(name)
    expect(readFileSync(join(place, name), "utf8")).toBe(text)
    expect(text).toBe(readFileSync(join(root, "examples", framework, name), "utf8"))
  }
  expect(files).toContain(framework === "fastapi" ? "requirements.txt" : "package.json")
})

it("writes into no folder that has something, and knows its frameworks", async () => {
  const place = join(folder, "full")
  mkdirSync(place)
  writeFileSync(join(place, "mine"), "1")
  expect(await cli.run(["init", "express", place])).toMatchObject({ code: 1, out: "" })
  expect(await cli.run(["init", "rails", join(folder, "rails")])).toMatchObject({ code: 2, out: "" })
})
