/**
 * Payments that an x402 facilitator verifies and settles a second, with one API and one worker process of the real
 * program on a durable Postgres, called by the stock client of facilitators. Compared in the same run with the stock
 * facilitator of `@x402/core` and `@x402/evm`, called in this process as `@x402/express` calls one that it is given,
 * and with raw relays that are signed beforehand. They take turns, each first as often as last. Goals: verify at least
 * 1.0 of the stock one, settle at least 0.8 of raw relays. `--against COMMIT` compares with another commit's program.
 *
 * Each kind has an anvil of its own that mines each transaction at once, and settles the same number of payments in
 * each turn. So all chains have the same age in a turn: anvil takes longer for each block the longer its chain is. The
 * work is not the same. Raw relays are sent by one loop that gets signed bytes. It checks no signature, simulates,
 * signs and stores nothing, and at the end reads one count and no receipts. The stock facilitator does what ours does
 * for the buyer (check, simulate, sign, send, receipt), but in the caller's process and without a record. So it is the
 * one to compare with, and raw relays are the limit of the chain. Both facilitators get the same number of concurrent
 * requests. At the end ours and raw relays settle on blocks of two seconds, as a real network has them, with the same
 * number under way: few enough for a block to hold them, so that it counts whether each gets into the next one, and more
 * than a block holds, so that it counts how many it holds.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { x402Facilitator } from "@x402/core/facilitator"
import { HTTPFacilitatorClient } from "@x402/core/http"
import type { PaymentPayload } from "@x402/core/types"
import { ExactEvmScheme as PayingScheme, toFacilitatorEvmSigner } from "@x402/evm"
import { ExactEvmScheme } from "@x402/evm/exact/facilitator"
import { x402Client } from "@x402/fetch"
import { createWalletClient, encodeFunctionData, type Hex, http, type NonceManager, publicActions } from "viem"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { batch } from "../server/src/platform/chain/rpc.ts"
import { deployDepositFactory, deployTestUsdc, placeSharedContracts, startAnvil } from "../server/test/anvil.ts"
import { freePort, root, until } from "../server/test/e2e/program.ts"
import { AUDIENCE, startIssuer } from "../server/test/issuer.ts"
import { fundPayers } from "../server/test/payers.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { type Figure, type Figures, rounds } from "./rounds.ts"

const VERIFICATIONS = 600
const SETTLEMENTS = 200
/** Measurements of each in one process, after a warm-up; their median is the figure of the process. */
const TURNS = 3
/** Concurrent requests. */
const AT_ONCE = 32
/** Seconds between blocks, as Base has them, and how many of so many settlements are under way then. */
const BLOCK_SECONDS = 2
const ON_SLOW_BLOCKS = [
  { settlements: 1_024, atOnce: 256 },
  { settlements: 3_072, atOnce: 1_024 },
]
/** Transactions in a request to the node, as many as the engine sends in one. */
const IN_REQUEST = 16
const NETWORK = "eip155:84532"
const TICKS_PER_SECOND = 100

const slowName = (what: string, atOnce: number) => `settle, ${what}, blocks of ${BLOCK_SECONDS} s, ${atOnce} at once`
const cpuName = (process: string) => `a settlement, ${process}`

const FIGURES: Record<string, Figure> = {
  "verify, stock": { unit: "/s" },
  "verify, Sluice": { unit: "/s", limit: "verify, stock" },
  "settle, raw, one a request": { unit: "/s" },
  [`settle, raw, ${IN_REQUEST} a request`]: { unit: "/s" },
  "settle, stock": { unit: "/s" },
  "settle, Sluice": { unit: "/s", limit: "settle, raw, one a request" },
  ...Object.fromEntries(
    ON_SLOW_BLOCKS.flatMap(({ atOnce }) => [
      [slowName("raw", atOnce), { unit: "/s" }],
      [slowName("Sluice", atOnce), { unit: "/s", limit: slowName("raw", atOnce) }],
    ]),
  ),
  ...Object.fromEntries(
    ["API", "worker", "Postgres", "anvil", "caller"].map(name => [cpuName(name), { unit: "ms of CPU" }]),
  ),
}
// This process only starts the ones that measure, and needs nothing of what follows.
if (!process.argv.includes("--once")) {
  await rounds(import.meta.filename, FIGURES, () => Promise.reject(new Error("measured without --once")))
  process.exit(0)
}

/** Milliseconds of CPU that a process and its children have used; Linux only. */
function cpuOf(pid: number): number {
  const of = (id: string): number => {
    try {
      // pid (name) state ppid …, user and system time as the 14th and 15th field; a name may hold spaces.
      const fields = readFileSync(`/proc/${id}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
      return id === `${pid}` || fields[1] === `${pid}` ? Number(fields[11]) + Number(fields[12]) : 0
    } catch {
      // It ended meanwhile.
      return 0
    }
  }
  const ids = readdirSync("/proc").filter(name => /^\d+$/.test(name))
  return (ids.reduce((sum, id) => sum + of(id), 0) * 1_000) / TICKS_PER_SECOND
}

/** The processes that this one has started. */
function children(): number[] {
  return readFileSync(`/proc/self/task/${process.pid}/children`, "utf8").trim().split(" ").map(Number)
}

const relayKey = generatePrivateKey()
const payoutKey = generatePrivateKey()

/** A chain with the token, which has the same address on each, and with gas for every sender. */
async function openChain() {
  const before = children()
  const anvil = await startAnvil({ slotsInAnEpoch: 10 })
  const pid = children().find(id => !before.includes(id)) ?? 0
  const { client } = anvil
  await placeSharedContracts(client)
  const token = await deployTestUsdc(client)
  await fundPayers(anvil, token)
  const factory = await deployDepositFactory(client, privateKeyToAccount(payoutKey).address)
  for (const key of [relayKey, payoutKey])
    await client.setBalance({ address: privateKeyToAccount(key).address, value: 10n ** 21n })
  return { anvil, pid, client, token, factory }
}
type Chain = Awaited<ReturnType<typeof openChain>>

const postgres = await startPostgres({ fsync: true })
const issuer = await startIssuer()
const chains = {
  single: await openChain(),
  batched: await openChain(),
  stock: await openChain(),
  sluice: await openChain(),
}
const { token } = chains.sluice
const processes: ChildProcess[] = []
const scratch = mkdtempSync(join(tmpdir(), "sluice-x402-"))
process.once("exit", () => {
  for (const child of processes) child.kill("SIGKILL")
  rmSync(scratch, { recursive: true, force: true })
})
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))

/** Whether a URL answers with success. */
const isWell = (address: string) => () =>
  fetch(address).then(
    ({ ok }) => ok,
    () => false,
  )

/** Starts a process of the program. */
async function start(role: "api" | "worker"): Promise<{ url: string; pid: number }> {
  const port = await freePort()
  const env = {
    PATH: process.env.PATH ?? "",
    MODE: "test",
    LOG_LEVEL: "fatal",
    DATABASE_URL: postgres.url,
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: issuer.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    NETWORKS: "base-sepolia",
    RPC_BASE_SEPOLIA: chains.sluice.anvil.rpcUrl,
    TOKEN_BASE_SEPOLIA: token,
    DEPOSIT_FACTORY_BASE_SEPOLIA: chains.sluice.factory,
    PAYOUT_PRIVATE_KEY: payoutKey,
    RELAY_PRIVATE_KEY: relayKey,
    GAS_BUDGET: "0",
    LIMIT_FACILITATOR: "0",
    DATA_DIR: join(scratch, role),
    ...(role === "api" ? { PORT: `${port}` } : { HEALTH_PORT: `${port}` }),
  }
  const args = ["server/src/main.ts", "--role", role]
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: ["ignore", 2, 2] })
  child.once("exit", code => code && process.exit(1))
  processes.push(child)
  const url = `http://127.0.0.1:${port}`
  await until(`the ${role} answers`, isWell(`${url}/healthz`))
  return { url, pid: child.pid ?? 0 }
}

const api = await start("api")
const worker = await start("worker")
const { url } = api
await until("the API is ready", isWell(`${url}/readyz`))
const created = await fetch(`${url}/api/console/api-keys`, {
  method: "POST",
  headers: { authorization: `Bearer ${await issuer.token("shop")}`, "content-type": "application/json" },
  body: JSON.stringify({ name: "Server" }),
})
const { key: apiKey } = (await created.json()) as { key: string }
const headers = { "x-api-key": apiKey }
const sluice = new HTTPFacilitatorClient({
  url: `${url}/x402`,
  createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
})

/**
 * The stock facilitator. Nonces are in the process's memory and receipts immediate: otherwise it settles one payment
 * after the other.
 */
let stockNonce = 0
const stockNonces: NonceManager = {
  consume: async () => stockNonce++,
  get: async () => stockNonce,
  increment: () => {},
  reset: () => {},
}
const stockAccount = privateKeyToAccount(relayKey, { nonceManager: stockNonces })
const stockWallet = createWalletClient({
  account: stockAccount,
  chain: chains.stock.client.chain,
  transport: http(chains.stock.anvil.rpcUrl),
  pollingInterval: 5,
}).extend(publicActions)
const receipt = { timeout: 5_000 }
const stockSigner = {
  ...stockWallet,
  address: stockAccount.address,
  waitForTransactionReceipt: (of: { hash: Hex }) => stockWallet.waitForTransactionReceipt({ ...of, ...receipt }),
}
const stock = new x402Facilitator().register(NETWORK, new ExactEvmScheme(toFacilitatorEvmSigner(stockSigner as never)))

const payTo = privateKeyToAccount(generatePrivateKey()).address
const terms = {
  scheme: "exact",
  network: NETWORK,
  maxTimeoutSeconds: 3_600,
  extra: { name: "USDC", version: "2" },
} as const
const requirements = { ...terms, amount: "10000", asset: token, payTo }
const payers = chains.sluice.anvil.accounts.slice(2).map(account => {
  const payer = new x402Client().register(NETWORK, new PayingScheme(account))
  return payer.setSpendControls(false)
})

/** Payments that buyers signed. */
const signed = (count: number): Promise<PaymentPayload[]> => {
  const required = { x402Version: 2, resource: { url: "https://api.example/weather" }, accepts: [requirements] }
  const payer = (i: number) => payers[i % payers.length] as x402Client
  return Promise.all(Array.from({ length: count }, (_, i) => payer(i).createPaymentPayload(required)))
}

/** Calls a second, with this many at a time. Throws where one is refused: `call` returns the reason. */
async function rate(
  payments: PaymentPayload[],
  call: (payment: PaymentPayload) => Promise<string | undefined>,
  atOnce = AT_ONCE,
): Promise<number> {
  const queue = [...payments]
  const startedAt = performance.now()
  const work = async () => {
    for (let next = queue.pop(); next; next = queue.pop()) {
      const refused = await call(next)
      if (refused !== undefined) throw new Error(`a payment was refused: ${refused}`)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  return payments.length / ((performance.now() - startedAt) / 1_000)
}

type Facilitator = Pick<HTTPFacilitatorClient, "verify" | "settle">
const verifies = async (by: Facilitator) =>
  await rate(await signed(VERIFICATIONS), async payment => {
    const { isValid, invalidReason } = await by.verify(payment, requirements)
    return isValid ? undefined : `${invalidReason}`
  })
const settles = async (by: Facilitator, payments: PaymentPayload[], atOnce = AT_ONCE) =>
  await rate(
    payments,
    async payment => {
      const { success, errorReason, errorMessage } = await by.settle(payment, requirements)
      return success ? undefined : `${errorReason} ${errorMessage}`
    },
    atOnce,
  )

/**
 * Settlements a second of the stock facilitator. In about one of 20 turns it waits for nothing: anvil keeps a
 * transaction queued forever that comes while the one before is being mined, and viem looks for a receipt only when
 * there is another block. Such a turn is measured again, without what hangs.
 */
async function settlesStock(): Promise<number> {
  const { client } = chains.stock
  for (let tries = 5; ; tries--) {
    const perSecond = await settles(stock, await signed(SETTLEMENTS)).catch(error => {
      if (tries === 0) throw error
    })
    if (perSecond !== undefined) return perSecond
    await client.dropAllTransactions()
    stockNonce = await client.getTransactionCount({ address: stockAccount.address })
  }
}

const rawSender = privateKeyToAccount(relayKey)
const transferAbi = [
  {
    type: "function",
    name: "transferWithAuthorization",
    stateMutability: "nonpayable",
    outputs: [],
    inputs: ["address", "address", "uint256", "uint256", "uint256", "bytes32", "bytes"].map(type => ({
      type,
      name: "",
    })),
  },
] as const

/**
 * Settlements a second of the same transfers, signed before the clock starts and sent `inRequest` at a time, until all
 * are mined. Where less than all may be under way, it waits for the blocks that have them.
 */
async function raw(
  { client, anvil }: Chain,
  { inRequest = 1, settlements = SETTLEMENTS, atOnce = SETTLEMENTS },
): Promise<number> {
  const payments = await signed(settlements)
  const first = await client.getTransactionCount({ address: rawSender.address })
  const transactions = await Promise.all(
    payments.map(({ payload }, i) => {
      const { authorization, signature } = payload as { authorization: Record<string, string>; signature: Hex }
      const { from, to, value, validAfter, validBefore, nonce } = authorization
      const args = [from, to, value, validAfter, validBefore, nonce, signature] as never
      return rawSender.signTransaction({
        type: "eip1559",
        chainId: 84532,
        nonce: first + i,
        to: token,
        gas: 120_000n,
        maxFeePerGas: 20_000_000_000n,
        maxPriorityFeePerGas: 1_000_000_000n,
        data: encodeFunctionData({ abi: transferAbi, functionName: "transferWithAuthorization", args }),
      })
    }),
  )
  const startedAt = performance.now()
  for (let i = 0; i < transactions.length; i += inRequest) {
    const calls = transactions
      .slice(i, i + inRequest)
      .map(bytes => ({ method: "eth_sendRawTransaction", params: [bytes] }))
    const results = await batch({ url: anvil.rpcUrl, network: "bench" }, calls)
    const fault = results.find(result => !result.ok)
    if (fault) throw new Error(`a raw relay was refused: ${JSON.stringify(fault)}`)
    const sent = i + calls.length
    if (sent % atOnce === 0 || sent === settlements)
      while ((await client.getTransactionCount({ address: rawSender.address })) < first + sent);
  }
  return settlements / ((performance.now() - startedAt) / 1_000)
}

/**
 * The CPU time that a settlement takes in each process, in milliseconds. The caller's is that of the stock client, in
 * this process.
 */
async function settlesOurs(figures: Figures): Promise<number> {
  const pids = { API: api.pid, worker: worker.pid, Postgres: postgres.pid(), anvil: chains.sluice.pid }
  const used = () => {
    const { user, system } = process.cpuUsage()
    return {
      ...Object.fromEntries(Object.entries(pids).map(([name, pid]) => [name, cpuOf(pid)])),
      caller: (user + system) / 1_000,
    }
  }
  const payments = await signed(SETTLEMENTS)
  const before: Figures = used()
  const perSecond = await settles(sluice, payments)
  for (const [name, ms] of Object.entries(used())) figures[cpuName(name)] = (ms - (before[name] ?? 0)) / SETTLEMENTS
  return perSecond
}

/** Measures each kind once, and the CPU time of ours. */
async function measureTurn(turn: number): Promise<Figures> {
  const figures: Figures = {}
  const measures: Record<string, () => Promise<number>> = {
    "verify, stock": async () => await verifies(stock),
    "verify, Sluice": async () => await verifies(sluice),
    "settle, raw, one a request": () => raw(chains.single, {}),
    [`settle, raw, ${IN_REQUEST} a request`]: () => raw(chains.batched, { inRequest: IN_REQUEST }),
    "settle, stock": settlesStock,
    "settle, Sluice": () => settlesOurs(figures),
  }
  const order = Object.entries(measures)
  // The order changes in each turn, as the spare capacity of a machine does.
  for (const [name, rate] of turn % 2 === 0 ? order : order.reverse()) figures[name] = await rate()
  return figures
}

/** Measures on blocks of two seconds: on a chain each, one after the other. */
async function measureOnSlowBlocks(): Promise<Figures> {
  for (const { client } of [chains.single, chains.sluice]) {
    await client.setAutomine(false)
    await client.setIntervalMining({ interval: BLOCK_SECONDS })
  }
  const figures: Figures = {}
  for (const { settlements, atOnce } of ON_SLOW_BLOCKS) {
    figures[slowName("raw", atOnce)] = await raw(chains.single, { settlements, atOnce })
    figures[slowName("Sluice", atOnce)] = await settles(sluice, await signed(settlements), atOnce)
  }
  return figures
}

const median = (values: number[]): number => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

async function measure(): Promise<Figures> {
  const turns: Figures[] = []
  // The first turn warms up and is not counted.
  for (let turn = 0; turn <= TURNS; turn++) {
    const figures = await measureTurn(turn)
    if (turn > 0) turns.push(figures)
  }
  const onSlowBlocks = await measureOnSlowBlocks()
  // They leave gigabytes of files when they are killed.
  for (const { anvil } of Object.values(chains)) await anvil.stop()
  const medians = Object.fromEntries(
    Object.keys(FIGURES).map(name => [name, median(turns.map(figures => figures[name] ?? 0))]),
  )
  return { ...medians, ...onSlowBlocks }
}

await rounds(import.meta.filename, FIGURES, measure)
