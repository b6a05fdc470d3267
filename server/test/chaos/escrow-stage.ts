/**
 * The stage of the chaos of escrows: a chain whose blocks are displaced, three endpoints of which one lies, merchants' wallets, and
 * processes on one database that are ended and started again. One clock for all of them, and for the chain, is moved by hand.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import { type Hex, toHex } from "viem"
import { generatePrivateKey, mnemonicToAccount, type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts"
import { type Address, checksummed } from "../../src/platform/chain/hex.ts"
import { openOwnPostgres } from "../database.ts"
import { plainEnv, root } from "../e2e/program.ts"
import { type PayoutRig, startPayoutRig } from "../payouts.ts"
import { placeEscrow, reservesOn } from "../reserve.ts"
import { apiPoints, kindOfRaw, sendPoints, workerPoints } from "./escrow-points.ts"
import type { ProcessOptions } from "./escrow-process.ts"
import { type FaultyProxy, liedOf, type Rates, startFaultyProxy } from "./faulty-proxy.ts"

const MERCHANTS = 5
const ETHER = 10n ** 18n
const TRANSFER_GAS = 100_000n
const MAX_FEE = 10n ** 11n
/** A block is final when this many are on it. */
export const FINAL_DEPTH = 8

/** Faults of all endpoints, and how often the third lies. */
const rates: Rates = {
  refuse: 0.01,
  breakOff: 0.01,
  takeAndBreak: 0.1,
  swallow: 0.05,
  forget: 0.05,
  hide: 0.02,
  lie: 0,
}
const LIES = 0.3

export interface Merchant {
  /** Its subject, which is its token at the API processes. */
  sub: string
  id: string
  wallet: PrivateKeyAccount
}

/** A process that runs, and where it is to be ended. */
interface Playing {
  child: ChildProcess
  point: string | undefined
  nth: number
}

export interface Stage {
  rig: PayoutRig
  on: ReturnType<typeof reservesOn>
  databaseUrl: string
  proxies: FaultyProxy[]
  merchants: Merchant[]
  /** The addresses of the API processes, by their places. */
  apis: (string | undefined)[]
  playing: Map<number, Playing>
  /** How often a process was ended at each point. */
  kills: Record<string, number>
  /** What processes logged as errors that no endpoint explains. */
  errors: string[]
  aheadMs: number
  stop(): Promise<void>
}

/** Starts everything but the processes. */
export async function setStage(postgresUrl: string, random: () => number, honest: boolean): Promise<Stage> {
  const limits = { gasBudget: 0n, gasBudgetTotal: 0n, relayContractBudget: 0n }
  const rig = await startPayoutRig(limits, await openOwnPostgres(postgresUrl), { slotsInAnEpoch: FINAL_DEPTH / 2 })
  const on = reservesOn(rig, await placeEscrow(rig))
  await rig.anvil.client.mine({ blocks: 2 * FINAL_DEPTH })
  await on.begin()
  const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(rig.service.ctx.db)
  const databaseUrl = Object.assign(new URL(postgresUrl), { pathname: `/${rows[0]?.name}` }).href
  const proxies: FaultyProxy[] = []
  for (const i of [0, 1, 2]) {
    const proxy = await startFaultyProxy(rig.anvil.rpcUrl, random)
    if (!honest) proxy.rates = { ...rates, lie: i === 2 ? LIES : 0 }
    proxy.lieOf = escrowLie
    proxies.push(proxy)
  }
  const merchants: Merchant[] = []
  for (let i = 0; i < MERCHANTS; i++) merchants.push(await enrol(rig, `merchant${i}`))
  const stage: Stage = {
    rig,
    on,
    databaseUrl,
    proxies,
    merchants,
    apis: [],
    playing: new Map(),
    kills: {},
    errors: [],
    aheadMs: 0,
    stop: async () => {
      for (const { child } of stage.playing.values()) child.kill("SIGKILL")
      for (const proxy of proxies) await proxy.stop()
      await rig.stop()
    },
  }
  for (const proxy of proxies)
    proxy.onSend = (place, point, raws) => {
      const doomed = stage.playing.get(place)
      const isMet = doomed && raws.some(raw => doomed.point === `${point} ${kindOfRaw(raw)}`)
      return isMet && --doomed.nth <= 0 ? doomed.child.kill("SIGKILL") : false
    }
  return stage
}

/** A merchant with a wallet of its own, which has tokens for no refund but those that it was paid. */
async function enrol({ service, anvil }: PayoutRig, sub: string): Promise<Merchant> {
  const wallet = privateKeyToAccount(generatePrivateKey())
  await anvil.client.setBalance({ address: wallet.address, value: ETHER })
  const payoutAddress = checksummed(wallet.address.toLowerCase() as Address)
  const { body } = await service.call("PUT", "/api/console/settings", { payoutAddress }, { as: sub })
  return { sub, id: body.merchantId, wallet }
}

/** What the liar says: false counts, blocks, heads and receipts, no logs, and payments that were never collected or are whole. */
function escrowLie(...[call, result, random]: Parameters<typeof liedOf>): unknown {
  const { method, params } = call
  if (method === "eth_getLogs") return []
  if (method === "eth_getBlockByNumber" && !`${params[0]}`.startsWith("0x") && random() < 0.5) {
    // A head far ahead of the chain, or far behind it.
    const { number, ...block } = result as { number: Hex }
    const other = BigInt(number) + (random() < 0.5 ? 9n : -9n)
    return { ...block, number: toHex(other < 0n ? 0n : other) }
  }
  if (method !== "eth_call") return liedOf(call, result, random)
  // A call that fails succeeds, and what a payment has is another's: three words.
  if (result === undefined) return "0x"
  return `${result}`.length === 2 + 3 * 64
    ? `0x${toHex(random() < 0.5 ? 1n : 0n, { size: 32 }).slice(2)}${"0".repeat(128)}`
    : result
}

/** Moves the one clock of the service, its processes and the chain, whose next block has it. */
export function pass(stage: Stage, ms: number): void {
  stage.aheadMs += ms
  stage.rig.service.advance(ms)
  for (const { child } of stage.playing.values()) if (child.connected) child.send(stage.aheadMs, () => {})
}

/** Signs a call of an account as the next one of a block, so that it can also be put into a reorg. */
export async function signedBy(
  { rig: { anvil } }: Stage,
  account: PrivateKeyAccount,
  call: { to: Address; data: Hex },
  blockNumber?: bigint,
): Promise<Hex> {
  const { client } = anvil
  const at = blockNumber === undefined ? { blockTag: "latest" as const } : { blockNumber }
  const nonce = await client.getTransactionCount({ address: account.address, ...at })
  const fees = { maxFeePerGas: MAX_FEE, maxPriorityFeePerGas: 10n ** 9n }
  return await account.signTransaction({
    type: "eip1559",
    chainId: 84532,
    gas: 3n * TRANSFER_GAS,
    nonce,
    ...fees,
    ...call,
  })
}

const relayKey = (): Hex => {
  const { privateKey } = mnemonicToAccount("test test test test test test test test test test test junk", {
    addressIndex: 2,
  }).getHdKey()
  if (!privateKey) throw new Error("no key")
  return toHex(privateKey)
}

/** Where processes are ended, and how often at each of these points. */
export interface Dooms {
  points: readonly string[]
  killsOfEach: number
  /** How many of the points need not be met; none without it. */
  mayMiss?: number
}

/** The points at which processes were ended less often than they should be. */
export const unmetPoints = ({ kills }: Stage, { points, killsOfEach }: Dooms): string[] =>
  points.filter(point => (kills[point] ?? 0) < killsOfEach)

/** Whether processes were ended at enough points. */
export const isEnough = (stage: Stage, dooms: Dooms): boolean =>
  unmetPoints(stage, dooms).length <= (dooms.mayMiss ?? 0)

/** The point that was met the least and that no living process waits for; undefined once each was met often enough. */
function nextPoint(
  { kills, playing }: Stage,
  { points, killsOfEach }: Dooms,
  mine: readonly string[],
): string | undefined {
  const taken = new Set([...playing.values()].map(({ point }) => point))
  return points
    .filter(point => mine.includes(point) && !taken.has(point) && (kills[point] ?? 0) < killsOfEach)
    .sort((a, b) => (kills[a] ?? 0) - (kills[b] ?? 0))[0]
}

/** One process after another in the same place, until it is over; each is ended at a point that was met too rarely. */
export async function keepPlaying(
  stage: Stage,
  role: ProcessOptions["role"],
  place: number,
  dooms: Dooms,
  { signal, say }: { signal: AbortSignal; say?: ((text: string) => void) | undefined },
): Promise<void> {
  const { name, chainId, token, depositFactory, escrow } = stage.rig.network
  const network = {
    name,
    chainId,
    token: token.address,
    depositFactory,
    escrow,
    sanctionsOracle: undefined,
    confirmations: 3,
  }
  while (!signal.aborted) {
    const point = nextPoint(stage, dooms, role === "api" ? apiPoints : [...workerPoints, ...sendPoints])
    const inside = point !== undefined && !sendPoints.includes(point)
    const options: ProcessOptions = {
      role,
      databaseUrl: stage.databaseUrl,
      key: relayKey(),
      issuer: stage.rig.service.issuer.issuer,
      network: { ...network, rpcUrls: stage.proxies.map(proxy => proxy.url(place)) },
      aheadMs: stage.aheadMs,
      killAt: inside ? { point, nth: 1 } : undefined,
    }
    const by = await run(stage, options, { place, point })
    if (signal.aborted) return
    if (by !== "SIGKILL") stage.errors.push(`a process ended by itself: ${by}`)
    if (point && by === "SIGKILL") stage.kills[point] = (stage.kills[point] ?? 0) + 1
    say?.(`${role} ${place} ended ${point}`)
    if (by !== "SIGKILL") await sleep(1_000)
  }
}

/** Runs a process until its end; answers the signal that ended it. */
function run(
  stage: Stage,
  options: ProcessOptions,
  { place, point }: { place: number; point: string | undefined },
): Promise<string | null> {
  const child = spawn(process.execPath, ["server/test/chaos/escrow-process.ts", JSON.stringify(options)], {
    cwd: root,
    env: plainEnv(),
    stdio: ["ignore", "pipe", "inherit", "ipc"],
  })
  stage.playing.set(place, { child, point, nth: 1 })
  let rest = ""
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    const lines = `${rest}${text}`.split("\n")
    rest = lines.pop() ?? ""
    for (const line of lines) {
      if (line.startsWith("http")) stage.apis[place] = line
      else if (line.startsWith("{")) noteError(stage, line)
    }
    // The clock may have been moved while it started.
    if (child.connected) child.send(stage.aheadMs, () => {})
  })
  return new Promise(resolve =>
    child.once("close", (_, by) => {
      stage.playing.delete(place)
      stage.apis[place] = undefined
      resolve(by)
    }),
  )
}

/** An error that endpoints, reorgs and kills explain is none; what the database refuses, and what is thrown by mistake, is. */
function noteError({ errors }: Stage, line: string): void {
  const { err, msg } = JSON.parse(line) as {
    err?: { type: string; message: string; code?: string; stack?: string }
    msg: string
  }
  if (!err || err.type === "RpcError" || err.type === "ApiError") return
  const words = `${msg}: ${err.type} ${err.code ?? ""} ${err.message}`
  if (!errors.includes(words)) errors.push(words)
}
