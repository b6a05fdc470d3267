// What an API process serves where no endpoint answers at its start: what the last start found, and nothing else.
import { pino } from "pino"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../test/anvil.ts"
import { openTestDatabase } from "../test/database.ts"
import { until } from "../test/e2e/program.ts"
import { type RpcProxy, startProxy } from "../test/proxy.ts"
import { connectNetworks, keepNetworks } from "./connect-networks.ts"
import { readSettings } from "./platform/config/read-settings.ts"
import type { Settings } from "./platform/config/settings.ts"
import type { OpenDatabase } from "./platform/db/open.ts"

let anvil: Anvil
let proxy: RpcProxy
let database: OpenDatabase
let settings: Settings
let stopping: AbortController
let failures: Error[]

beforeAll(async () => {
  anvil = await startAnvil()
  proxy = await startProxy(anvil.rpcUrl)
  database = await openTestDatabase()
  settings = readSettings({
    MODE: "test",
    NETWORKS: "base-sepolia",
    RPC_BASE_SEPOLIA: proxy.url,
    TOKEN_BASE_SEPOLIA: await deployTestUsdc(anvil.client),
    DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, anvil.accounts[1].address),
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: "http://127.0.0.1:1",
    OIDC_AUDIENCE: "sluice",
  })
})
afterAll(async () => {
  await database?.close()
  await proxy?.stop()
  await anvil?.stop()
})
beforeEach(async () => {
  stopping?.abort()
  stopping = new AbortController()
  failures = []
  proxy.broken = undefined
  proxy.spoil = (_method, _params, result) => result
  await database.db.deleteFrom("installation").execute()
})

const connect = (own: Partial<Settings> = {}, isApi = true) =>
  connectNetworks({
    db: database.db,
    settings: { ...settings, ...own },
    log: pino({ level: "silent" }),
    signal: stopping.signal,
    isApi,
    fail: error => void failures.push(error),
    known: { forMs: 0, everyMs: 1 },
    uncheckedMs: 1,
  })

it("serves a network as the last start found it while no endpoint answers, and checks it when one does", async () => {
  const found = await connect()
  await keepNetworks(database.db, settings, found)
  for (const broken of ["reset", 503] as const) {
    proxy.broken = broken
    const served = await connect()
    const plain = (networks: typeof found) => networks.map(({ endpoints, ...rest }) => [rest, endpoints.length])
    expect(plain(served)).toEqual(plain(found))
  }
  const asked = proxy.total()
  proxy.broken = undefined
  await until("it is checked", () => proxy.total() > asked + 10)
  expect(failures).toEqual([])
})

it("ends the process when the network is another one than it was", async () => {
  await keepNetworks(database.db, settings, await connect())
  proxy.broken = "reset"
  await connect()
  proxy.spoil = (method, _params, result) =>
    method === "eth_getBlockByNumber" ? { ...(result as object), hash: `0x${"9".repeat(64)}` } : result
  proxy.broken = undefined
  await until("it fails", () => failures.length > 0)
  expect(failures[0]?.message).toContain("base-sepolia is no longer as the last start found it")
})

it("serves nothing unchecked for other settings than those that were checked", async () => {
  await keepNetworks(database.db, settings, await connect())
  proxy.broken = "reset"
  const [network] = settings.networks
  if (!network) throw new Error("no network")
  const factory = { networks: [{ ...network, depositFactory: network.token }] }
  const starts = [connect(factory), connect({ payoutWallet: network.token }), connect({}, false)]
  let settled = 0
  for (const start of starts) start.catch(() => undefined).finally(() => settled++)
  const asked = proxy.total()
  await until("each is still trying", () => proxy.total() > asked + 6)
  expect(settled).toBe(0)
  stopping.abort()
  await Promise.allSettled(starts)
})
