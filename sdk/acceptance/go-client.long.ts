// x402's own Go client buys from shops whose handler fails: it pays nothing then, and once where the handler does not fail. The package
// comes from Go's module proxy, or from the folder that X402_GO names: its source, where the proxy does not have it.
import { execFile } from "node:child_process"
import { cpSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect, it } from "vitest"
import { plainEnv, root } from "../../server/test/e2e/program.ts"
import { newAddress, openTrade, PRICE, type Trade, UNITS } from "../test/sales.ts"
import { type Failure, shops } from "../test/shops.ts"

const exec = promisify(execFile)
const MODULE = "github.com/x402-foundation/x402/go"

let trade: Trade
let folder: string
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "sluice-go-"))
  cpSync(join(root, "sdk/acceptance/go"), folder, { recursive: true })
  const source = process.env.X402_GO
  if (source)
    await exec("go", ["mod", "edit", `-require=${MODULE}@v0.0.0`, `-replace=${MODULE}=${source}`], { cwd: folder })
  else await exec("go", ["get", `${MODULE}@latest`], { cwd: folder })
  await exec("go", ["build", "-mod=mod", "-o", "buyer", "."], { cwd: folder, maxBuffer: 10_000_000 })
  trade = await openTrade()
})
afterAll(async () => {
  await trade?.sandbox.remove()
  rmSync(folder, { recursive: true, force: true })
})

const failures: Failure[] = ["throws", "answers 500", "answers 404", "breaks off"]
const cases = Object.keys(shops).flatMap(name => failures.map(failure => [name, failure] as const))

it.each(cases)("pays nothing where the handler of %s %s, and once where it does not", async (name, failure) => {
  const { sandbox, wallets, apiKey } = trade
  const payTo = newAddress()
  const left = [failure]
  const shop = await shops[name]?.({ charge: { baseUrl: sandbox.url, apiKey, price: PRICE, payTo } }, () =>
    left.shift(),
  )
  const wallet = await wallets.make()
  const env = { ...plainEnv(), RESOURCE: `${shop?.url}`, BUYER_KEY: wallet.key }
  const buy = async () =>
    await exec(join(folder, "buyer"), { env }).then(
      ({ stdout }) => stdout,
      () => "broke off",
    )
  const first = await buy()
  // Go's transport sends a GET again by itself where a kept connection ended without an answer.
  const isSentAgain = failure === "breaks off" && first.includes("sunny")
  if (!isSentAgain) expect(first).not.toContain("sunny")
  expect([left, await wallets.paid(wallet.address)]).toEqual([[], isSentAgain ? [UNITS] : []])
  expect(isSentAgain ? first : await buy()).toMatch(/^200 true .*sunny/)
  expect(await wallets.paid(wallet.address, payTo)).toEqual([UNITS])
  shop?.stop()
})
