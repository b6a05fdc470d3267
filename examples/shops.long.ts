// Every shop as it is written, on the SDK as it is packed and on the frameworks' own packages.
import { execFile } from "node:child_process"
import { cpSync, mkdtempSync, readdirSync, rmSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, expect, it } from "vitest"
import { type Failure, shops as handlers } from "../sdk/test/shops.ts"
import { root } from "../server/test/e2e/program.ts"
import { installPackages, nodeFirst } from "../server/test/packages.ts"
import { findPython } from "../server/test/python.ts"
import { openPrograms } from "../server/test/x402/programs.ts"
import { type Market, openMarket, tryShop } from "./rig.ts"

const exec = promisify(execFile)

let market: Market
let folder: string
beforeAll(async () => {
  const sdk = await installPackages("sdk")
  const acceptance = await installPackages("sdk/acceptance")
  folder = mkdtempSync(join(acceptance, ".shops-"))
  await exec("npm", ["pack", "--pack-destination", folder], { cwd: sdk, env: nodeFirst() })
  const archive = readdirSync(folder).find(name => name.endsWith(".tgz")) ?? "none"
  const unpacked = join(folder, "node_modules/@sluice/sdk")
  await exec("mkdir", ["-p", unpacked])
  await exec("tar", ["-xzf", join(folder, archive), "--strip-components=1", "-C", unpacked])
  market = await openMarket()
})
afterAll(async () => {
  await market?.close()
  rmSync(folder, { recursive: true, force: true })
})

it.each(["express", "fastify", "hono"])("the shop on %s takes orders and sells its report", async name => {
  const file = join(folder, `${name}.mjs`)
  cpSync(join(root, "examples", name, "shop.mjs"), file)
  const shop = await market.open([process.execPath, file], folder)
  await tryShop(market, shop.url, shop.payTo)
  await shop.close()
})

it("the shop on Next takes orders and sells its report", async () => {
  cpSync(join(root, "examples/next/app"), join(folder, "app"), { recursive: true })
  const next = join(root, "sdk/acceptance/node_modules/next/dist/bin/next")
  const env = { ...nodeFirst(), NEXT_TELEMETRY_DISABLED: "1", NODE_ENV: "production" as const }
  await exec(process.execPath, [next, "build", "--webpack"], { cwd: folder, env })
  const command = ["sh", "-c", `exec "${process.execPath}" "${next}" start --hostname 127.0.0.1 --port $PORT`]
  const shop = await market.open(command, folder)
  await tryShop(market, shop.url, shop.payTo)
  await shop.close()
})

it.each([
  ["express", "throws"],
  ["express", "answers 500"],
  ["fastify", "breaks off"],
  ["next", "throws"],
] as const)(
  "the stock Python client pays nothing where the handler of %s %s, and once where it does not",
  async (name, failure) => {
    const python = await findPython("x402", "server/test/x402/requirements.txt")
    if ("missing" in python) throw new Error(python.missing)
    const programs = openPrograms(() => python.program)
    const { sandbox, wallets } = market
    const payTo = privateKeyToAccount(generatePrivateKey()).address
    const failures: Failure[] = [failure]
    const charge = { baseUrl: sandbox.url, apiKey: sandbox.file().merchants[0].apiKey, price: "0.05", payTo }
    const shop = await handlers[name]?.({ charge }, () => failures.shift())
    const wallet = await wallets.make()
    const env = { RESOURCE: `${shop?.url}`, BUYER_KEY: wallet.key, TOKEN: wallets.token }
    const [failed] = await programs.run("buyer.py", env).catch(() => ["broke off"])
    expect(failed).not.toContain("sunny")
    expect(await wallets.paid(wallet.address)).toEqual([])
    const [answer] = await programs.run("buyer.py", env)
    expect(answer).toMatch(/^200 .*sunny/)
    expect(await wallets.paid(wallet.address, payTo)).toEqual([50_000n])
    shop?.stop()
    await programs.stop()
  },
)

it("the shop on FastAPI takes orders and sells its report", async () => {
  const python = await findPython("x402", "server/test/x402/requirements.txt")
  if ("missing" in python) throw new Error(python.missing)
  cpSync(join(root, "python/sluice"), join(folder, "sluice"), { recursive: true })
  cpSync(join(root, "examples/fastapi/shop.py"), join(folder, "shop.py"))
  const shop = await market.open([python.program, "shop.py"], folder)
  await tryShop(market, shop.url, shop.payTo)
  await shop.close()
  expect(readdirSync(folder)).toContain("shop.py")
})
