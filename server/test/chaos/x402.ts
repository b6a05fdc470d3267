/**
 * The chaos that agents' payments must outlive: two API processes and a relay worker, each ended by SIGKILL at each step between a
 * payment's claim and its answer, while two clients bring each payment at once, somebody else carries out every second authorization,
 * blocks are displaced, and one of three endpoints lies.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import { toHex } from "viem"
import { mnemonicToAccount } from "viem/accounts"
import { testUsdcAbi } from "../../src/platform/chain/abi.ts"
import { type Address, checksummed } from "../../src/platform/chain/hex.ts"
import { openOwnPostgres } from "../database.ts"
import { plainEnv, root, until } from "../e2e/program.ts"
import { type PayoutRig, startPayoutRig } from "../payouts.ts"
import { relaysOn, type Signed, signAuthorization } from "../relays.ts"
import { type FaultyProxy, type Rates, startFaultyProxy } from "./faulty-proxy.ts"
import type { KillPoint, WorkerOptions } from "./payout-worker.ts"
import type { ApiOptions } from "./x402-api.ts"
import { unsettled } from "./x402-verify.ts"

const BLOCK_MS = 150
const APIS = 2
/** Some kills meet nobody: their statement comes once in a payment. */
const WAVES_PER_KILL = 12
/** Each step of a request with a payment, before or after its statement is carried out. */
const apiPoints = [
  "before claim",
  "before claim's commit",
  "after claim's commit",
  "before serving",
  "after serving",
  "before answered",
] as const
export type ApiPoint = (typeof apiPoints)[number]
const CARELESS_AT: ApiPoint = "after serving"
const pointsOf = ({ points }: X402ChaosOptions): readonly ApiPoint[] => points ?? apiPoints
const relayPoints: KillPoint[] = ["after commit", "before final"]
/** The payee of what other servers settle here. */
const SELLER = `0x${"5e".repeat(20)}` as Address

/** What is bought: content, a call that reads, a call that acts, and a settlement for another server. */
const kinds = ["content", "GET", "POST", "facilitator"] as const
type Kind = (typeof kinds)[number]

/**
 * A careless service, as a trigger: it forgets that a call was answered, and says that content was answered before it was, which nobody
 * notices until a process is killed in between.
 */
const careless = `
  if starts_with(new.resource_id, 'bdl_') and new.answered_at is not null then
    new.answered_at := null;
    new.lease_until := clock_timestamp() - interval '1 second';
  end if;
  if starts_with(new.resource_id, 'pw_') and new.served_at is not null then
    new.answered_at := new.served_at;
  end if;`

export interface X402ChaosOptions {
  postgresUrl: string
  /** Waves of buyers; more come until every way of being ended was met. */
  waves: number
  /** How often each way of being ended is met. */
  killsOfEach: number
  reorgs: boolean
  /** Whether the service is a careless one, which is to be caught. */
  mutant?: boolean
  /** Where API processes are ended; everywhere without it. */
  points?: readonly ApiPoint[]
  limitMs: number
  say?: (text: string) => void
}

/** What came of it. */
export interface X402Report {
  violations: string[]
  kills: Record<string, number>
  reorgs: number
  ms: number
}

/** A buyer: one payment, and what its clients were answered for it. */
export interface Buyer {
  kind: Kind
  name: string
  signed: Signed
  /** Whether somebody else carries the authorization out, as soon as it is known here. */
  isOvertaken: boolean
  /** Whole answers with what was bought. */
  answers: number
  token: string | undefined
  /** Answers that say that nothing can be had, or that another payment is wanted. */
  refusals: string[]
}

interface Stage {
  rig: PayoutRig
  on: ReturnType<typeof relaysOn>
  databaseUrl: string
  origin: Server
  /** Endpoints beside the chain itself: an honest one, and one that fails and lies. */
  proxies: FaultyProxy[]
  paths: Record<Kind, string>
  key: string
  apis: (string | undefined)[]
  children: Set<ChildProcess>
  /** How often a process was killed while it served a settlement: its answer may have been sent. */
  cut: Map<string, number>
  /** What living processes are to be ended by. */
  doomed: Set<string>
}

/** Sets everything up, lets it happen, and reports what did not hold. */
export async function runX402Chaos(options: X402ChaosOptions): Promise<X402Report> {
  const startedAt = performance.now()
  const report: X402Report = { violations: [], kills: {}, reorgs: 0, ms: 0 }
  const stage = await setStage(options)
  const over = new AbortController()
  try {
    const waves = await enrol(stage, options)
    await stage.rig.anvil.client.setAutomine(false)
    const liar = stage.proxies.at(-1)
    if (liar && !options.mutant) liar.rates = LIES
    const playing = [
      mineAndReorg(stage, options, report, over.signal),
      keepRelaying(stage, options, report, over.signal),
      ...Array.from({ length: APIS }, (_, place) =>
        keepServing(stage, options, report, { place, signal: over.signal }),
      ),
    ]
    const came: Buyer[] = []
    const deadline = performance.now() + options.limitMs
    for (const wave of waves) {
      if (performance.now() > deadline || (came.length >= options.waves * wave.length && isOver(report, options))) break
      came.push(...wave)
      const clients = wave.flatMap((buyer, i) => [0, 1].map(n => buy(stage, buyer, i + n, deadline)))
      const rivals = wave.filter(each => each.isOvertaken).map(buyer => overtake(stage, buyer, deadline))
      await Promise.all([...clients, ...rivals])
      options.say?.(`${came.length} buyers; ${JSON.stringify(report.kills)}`)
    }
    // Whoever repeats a payment that was answered gets nothing for it.
    for (const buyer of came) await repeat(stage, buyer)
    const relays = () => stage.on.relays()
    const isFinal = async () =>
      (await relays()).every(({ state }) => ["final", "cancelled", "reverted"].includes(state))
    await until("all relays have ended", isFinal, options.limitMs).catch(
      error => void report.violations.push(error.message),
    )
    if (!isOver(report, options)) report.violations.push(`not every kill was met: ${JSON.stringify(report.kills)}`)
    over.abort()
    for (const child of stage.children) child.kill("SIGKILL")
    await Promise.all(playing)
    report.violations.push(...(await unsettled(stage, came, { seller: SELLER, cut: stage.cut })))
    report.ms = Math.round(performance.now() - startedAt)
    return report
  } finally {
    over.abort()
    for (const child of stage.children) child.kill("SIGKILL")
    stage.origin.closeAllConnections()
    stage.origin.close()
    for (const proxy of stage.proxies) await proxy.stop()
    await stage.rig.stop()
  }
}

/** Whether each way of being ended was met often enough. */
const isOver = ({ kills }: X402Report, options: X402ChaosOptions): boolean =>
  options.mutant || [...pointsOf(options), ...relayPoints].every(point => (kills[point] ?? 0) >= options.killsOfEach)

/** What one of three endpoints does: less than a quorum. */
const LIES: Rates = { refuse: 0.05, breakOff: 0, takeAndBreak: 0.2, swallow: 0.2, forget: 0.1, hide: 0.1, lie: 0.1 }

async function setStage({ postgresUrl, mutant }: X402ChaosOptions): Promise<Stage> {
  const rig = await startPayoutRig({}, await openOwnPostgres(postgresUrl))
  const on = relaysOn(rig)
  await on.begin()
  const { db } = rig.service.ctx
  const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(db)
  const databaseUrl = Object.assign(new URL(postgresUrl), { pathname: `/${rows[0]?.name}` }).href
  const origin = createServer((request, response) => void request.resume().on("end", () => response.end('{"ok":true}')))
  origin.listen(0, "127.0.0.1")
  await once(origin, "listening")
  const call = (url: string, body: object) => rig.service.call("POST", url, body, { as: "shop" })
  await call("/api/console/paywalls", { name: "Report", price: "0.50", slug: "report", contentData: { ok: true } })
  const routes = ["GET", "POST"].map(method => ({ method, path: "/now", price: "0.05" }))
  const originUrl = `http://127.0.0.1:${(origin.address() as AddressInfo).port}`
  await call("/api/console/bundles", { name: "Weather", slug: "weather", originUrl, routes })
  const { key } = (await call("/api/console/api-keys", { name: "server" })).body
  if (mutant) {
    await sql
      .raw(`create function be_careless() returns trigger language plpgsql as $$ begin ${careless} return new; end $$`)
      .execute(db)
    await sql`create trigger careless before update on settlements for each row execute function be_careless()`.execute(
      db,
    )
  }
  const paths = {
    content: "/api/p/report",
    GET: "/api/p/weather/now",
    POST: "/api/p/weather/now",
    facilitator: "/x402/settle",
  }
  const proxies = [
    await startFaultyProxy(rig.anvil.rpcUrl, Math.random),
    await startFaultyProxy(rig.anvil.rpcUrl, Math.random),
  ]
  return {
    rig,
    on,
    databaseUrl,
    origin,
    proxies,
    paths,
    key,
    apis: [],
    children: new Set(),
    cut: new Map(),
    doomed: new Set(),
  }
}

/** Whoever may see a careless service be killed comes before those who need it alive. */
const kindsOf = ({ mutant }: X402ChaosOptions, wave: number): readonly Kind[] =>
  mutant ? [wave === 0 ? "content" : "GET"] : [...kinds, ...kinds]

/** Waves of buyers, two of each kind, with their signed payments; made before any block is displaced. */
async function enrol({ rig, on, paths }: Stage, options: X402ChaosOptions): Promise<Buyer[][]> {
  const validBefore = BigInt(Math.floor(Date.now() / 1_000) + 3_600)
  const asked = async (kind: Kind): Promise<{ amount: string; payTo: string }> => {
    if (kind === "facilitator") return { amount: "10000", payTo: SELLER }
    const { headers } = await rig.service.call(kind === "POST" ? "POST" : "GET", paths[kind])
    return JSON.parse(Buffer.from(`${headers["payment-required"]}`, "base64").toString()).accepts[0]
  }
  const waves: Buyer[][] = []
  for (let n = 0; n < options.waves + WAVES_PER_KILL * options.killsOfEach; n++) {
    const wave: Buyer[] = []
    for (const [i, kind] of kindsOf(options, n).entries()) {
      const { amount, payTo } = await asked(kind)
      const account = await on.buyer(BigInt(amount))
      const terms = { to: payTo.toLowerCase() as Address, value: BigInt(amount), validBefore }
      const signed = await signAuthorization(account, rig.network, terms)
      const isOvertaken = i >= kinds.length
      const name = `${kind} ${n}${isOvertaken ? ", overtaken" : ""}`
      wave.push({ kind, name, signed, isOvertaken, answers: 0, token: undefined, refusals: [] })
    }
    waves.push(wave)
  }
  return waves
}

const wait = () => sleep(100)

/** One client of a buyer: it repeats its request at one API or the other until it is answered, or refused for good. */
async function buy(stage: Stage, buyer: Buyer, start: number, deadline: number): Promise<void> {
  for (let i = start; buyer.answers === 0 && performance.now() < deadline; i++) {
    const url = stage.apis[i % APIS]
    const { token } = buyer
    const answer = url && (await ask(stage, buyer, url, token).catch(() => undefined))
    // Content is good for its token as often as that is sent, and both clients have it after a 202.
    if (answer === "answered" && token !== undefined && buyer.kind === "content")
      buyer.answers = Math.max(1, buyer.answers)
    else if (answer === "answered") buyer.answers++
    else if (answer && answer !== "again") return void buyer.refusals.push(answer)
    else await wait()
  }
}

/**
 * Somebody else carries an authorization out, at a higher fee than the relay's, once the service has claimed it. A reorg
 * may remove the transaction; then it is sent again, until one of them is final.
 */
async function overtake({ rig }: Stage, { signed }: Buyer, deadline: number): Promise<void> {
  const { client, accounts } = rig.anvil
  const { from, to, value, validAfter, validBefore, nonce } = signed.authorization
  const { db } = rig.service.ctx
  const claim = () => db.selectFrom("settlements").select("id").where("nonce", "=", nonce).executeTakeFirst()
  while (!(await claim()) && performance.now() < deadline) await wait()
  const token = { address: rig.token, abi: testUsdcAbi } as const
  // While blocks are displaced, the head can't be asked.
  const isUsed = (blockTag: "latest" | "finalized") =>
    client
      .readContract({ ...token, functionName: "authorizationState", args: [from, nonce], blockTag })
      .catch(() => false)
  while (!(await isUsed("finalized")) && performance.now() < deadline) {
    const args = [from, to, value, validAfter, validBefore, nonce, signed.signature] as const
    const fees = { gas: 200_000n, maxFeePerGas: 10n ** 12n, maxPriorityFeePerGas: 10n ** 11n }
    // One of the same fee may be pending already.
    await client
      .writeContract({ ...token, functionName: "transferWithAuthorization", args, account: accounts[5], ...fees })
      .catch(() => {})
    for (let i = 0; i < 10 && !(await isUsed("latest")); i++) await wait()
    await wait()
  }
}

/** The payment of a buyer once more, without its token. */
async function repeat(stage: Stage, buyer: Buyer): Promise<void> {
  for (;;) {
    const url = stage.apis.find(each => each !== undefined)
    const answer = url && (await ask(stage, buyer, url, undefined).catch(() => undefined))
    if (answer === "answered") buyer.answers++
    if (answer) return
    await wait()
  }
}

/** One request: whether it was answered, is to be repeated, or why it was refused. */
async function ask(stage: Stage, buyer: Buyer, url: string, token: string | undefined): Promise<string> {
  const { kind, signed } = buyer
  const { authorization, signature } = signed
  const numbers = Object.fromEntries(Object.entries(authorization).map(([name, value]) => [name, `${value}`]))
  const accepted = {
    scheme: "exact",
    network: "eip155:84532",
    amount: `${authorization.value}`,
    payTo: checksummed(authorization.to),
    asset: checksummed(stage.rig.token),
    maxTimeoutSeconds: 2,
    extra: { name: "USDC", version: "2" },
  }
  const payload = { x402Version: 2, accepted, payload: { signature, authorization: numbers } }
  const isOurs = kind !== "facilitator"
  const payment = { "payment-signature": Buffer.from(JSON.stringify(payload)).toString("base64"), prefer: "wait=2" }
  const response = await fetch(`${url}${stage.paths[kind]}`, {
    method: kind === "content" || kind === "GET" ? "GET" : "POST",
    headers: isOurs
      ? token
        ? { "sluice-retry-token": token }
        : payment
      : { "content-type": "application/json", "x-api-key": stage.key },
    ...(isOurs
      ? {}
      : { body: JSON.stringify({ x402Version: 2, paymentPayload: payload, paymentRequirements: accepted }) }),
    signal: AbortSignal.timeout(20_000),
  })
  const body = await response.text()
  buyer.token ??= response.headers.get("sluice-retry-token") ?? undefined
  const { success, errorReason, error = "" } = JSON.parse(body) as Record<string, unknown>
  if (response.status >= 500 || response.status === 202 || errorReason === "settlement_pending") return "again"
  if (response.status === 200 && (isOurs || success === true)) return "answered"
  return `${response.status} ${errorReason ?? error}`
}

/** A block now and then; sometimes the last one is displaced, and its transactions are lost. */
async function mineAndReorg(
  { rig }: Stage,
  { reorgs }: X402ChaosOptions,
  report: X402Report,
  signal: AbortSignal,
): Promise<void> {
  const { client } = rig.anvil
  for (let n = 1; !signal.aborted; n++) {
    await sleep(BLOCK_MS)
    await client.mine({ blocks: 1 }).catch(() => {})
    if (!reorgs || n % 8 !== 0) continue
    await client.reorg(1).then(
      () => report.reorgs++,
      () => {},
    )
  }
}

/** The way that was met the least; undefined once each was met often enough. */
function nextPoint<P extends string>(
  points: readonly P[],
  { kills }: X402Report,
  most: number,
  playing: ReadonlySet<string>,
): P | undefined {
  return points
    .filter(point => !playing.has(point) && (kills[point] ?? 0) < most)
    .sort((a, b) => (kills[a] ?? 0) - (kills[b] ?? 0))[0]
}

/** Starts a program of this folder; answers its lines as they come, and how it ended. */
function start(
  { children }: Stage,
  program: string,
  options: object,
  onLine: (line: string) => void,
): Promise<string | null> {
  const child = spawn(process.execPath, [`server/test/chaos/${program}`, JSON.stringify(options)], {
    cwd: root,
    env: plainEnv(),
    stdio: ["ignore", "pipe", "inherit"],
  })
  children.add(child)
  let rest = ""
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    const lines = `${rest}${text}`.split("\n")
    rest = lines.pop() ?? ""
    for (const line of lines) onLine(line)
  })
  return new Promise(resolve =>
    child.once("close", (_, by) => {
      children.delete(child)
      resolve(by)
    }),
  )
}

const settingsOf = ({ rig, proxies }: Stage, place: number) => {
  const { name, chainId, token, depositFactory } = rig.network
  const rest = { token: token.address, depositFactory, confirmations: 1, sanctionsOracle: undefined }
  return { name, chainId, rpcUrls: [rig.anvil.rpcUrl, ...proxies.map(proxy => proxy.url(place))], ...rest }
}

/** Where the next API process is to be ended; a careless one where it shows, once. */
function nextKill({ doomed }: Stage, options: X402ChaosOptions, report: X402Report): ApiPoint | undefined {
  if (options.mutant) return report.kills[CARELESS_AT] ? undefined : CARELESS_AT
  return nextPoint(pointsOf(options), report, options.killsOfEach, doomed)
}

/** One API process after another in the same place. Of one that was killed, the claims have no process any more. */
async function keepServing(
  stage: Stage,
  options: X402ChaosOptions,
  report: X402Report,
  { place, signal }: { place: number; signal: AbortSignal },
): Promise<void> {
  while (!signal.aborted) {
    const killAt = nextKill(stage, options, report)
    if (killAt) stage.doomed.add(killAt)
    const claims = new Set<string>()
    const serves = new Set<string>()
    const program: ApiOptions = {
      databaseUrl: stage.databaseUrl,
      network: settingsOf(stage, place),
      relayWallet: stage.rig.relayer.address,
      killAt,
    }
    await start(stage, "x402-api.ts", program, line => {
      const [word = "", ...ids] = line.split(" ")
      if (word.startsWith("http")) stage.apis[place] = word
      else if (word === "claims") for (const id of ids) claims.add(id)
      else if (word === "serves") serves.add(`${ids[0]}`)
      else if (word === "answered") serves.delete(`${ids[0]}`)
    })
    stage.apis[place] = undefined
    if (killAt) stage.doomed.delete(killAt)
    for (const id of serves) stage.cut.set(id, (stage.cut.get(id) ?? 0) + 1)
    if (signal.aborted) return
    if (killAt) report.kills[killAt] = (report.kills[killAt] ?? 0) + 1
    options.say?.(`an API process ended ${killAt}`)
    if (claims.size > 0)
      await sql`update settlements set lease_until = clock_timestamp() - interval '1 second'
        where claim_id::text in (${sql.join([...claims])})`.execute(stage.rig.service.ctx.db)
  }
}

/** One relay worker after another; nobody waits for a lease of one that was killed. */
async function keepRelaying(
  stage: Stage,
  options: X402ChaosOptions,
  report: X402Report,
  signal: AbortSignal,
): Promise<void> {
  const { privateKey } = mnemonicToAccount("test test test test test test test test test test test junk", {
    addressIndex: 2,
  }).getHdKey()
  if (!privateKey) throw new Error("no key")
  while (!signal.aborted) {
    const point = options.mutant ? undefined : nextPoint(relayPoints, report, options.killsOfEach, stage.doomed)
    const killAt = point && { point, nth: 1 }
    const program: WorkerOptions = {
      databaseUrl: stage.databaseUrl,
      network: settingsOf(stage, APIS),
      key: toHex(privateKey),
      lane: "relay",
      killAt,
    }
    await start(stage, "payout-worker.ts", program, () => {})
    if (signal.aborted) return
    if (point) report.kills[point] = (report.kills[point] ?? 0) + 1
    options.say?.(`a relay worker ended ${point}`)
    await stage.rig.service.ctx.db.updateTable("wallets").set({ lease_until: null }).execute()
  }
}
