/**
 * Who takes part in the chaos of escrows: payers and merchants, each with its own story, who repeat a request until it is answered.
 * Nothing here knows where a process is killed or a block displaced.
 */
import { randomUUID } from "node:crypto"
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi, type Hex } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { authCaptureEscrowAbi } from "../../src/platform/chain/abi.ts"
import type { Address } from "../../src/platform/chain/hex.ts"
import type { Row } from "../../src/platform/db/schema.ts"
import { formatAmount } from "../../src/platform/money/amount.ts"
import { paymentInfoOf } from "../../src/products/escrow/payment-info.ts"
import { bodyOf, type Signed } from "../relays.ts"
import { FINAL_DEPTH, type Merchant, pass, type Stage, signedBy } from "./escrow-stage.ts"

const ETHER = 10n ** 18n
const REST_MS = 100
const POLL_MS = 300
/** Tries of what is refused for a reason that may pass: another call is under way, or a reorg removed what it is about. */
const TRIES = 60
const APIS = 2
const NUDGE_MS = 400
const NUDGED_MS = 8_000
const HOUR_S = 3_600
/** How far the clock is nudged after a time, in seconds. */
const NUDGED_S = 1_200
/** When each time is over, in seconds from the start of a wave. */
const TIMES = { expires: HOUR_S, short: 2 * HOUR_S, long: 4 * HOUR_S, refund: HOUR_S }

/** What becomes of a checkout, and its merchant: 0 approves at once, 1 late, 2 too little at first, 3 before it is asked, 4 never. */
const stories = {
  /** Captured by itself; refunded in full. */
  automatic: { merchant: 0, short: false },
  /** Captured by itself; refunded in two parts at once. */
  "refunded in parts": { merchant: 2, short: false },
  /** Captured in three parts, two of them at once; the rest released; a part refunded. */
  "captured in parts": { merchant: 1, short: false },
  /** Captured and released at the same time. */
  "captured and voided": { merchant: 0, short: false },
  voided: { merchant: 1, short: false },
  /** Nobody decides: it is released at the end of its time. */
  forgotten: { merchant: 1, short: false },
  /** A part is captured, and the payer takes the rest back. */
  reclaimed: { merchant: 0, short: true },
  /** Captured when the time is all but over. */
  late: { merchant: 0, short: true },
  /** A reorg removes the reservation, and the payer moves the money before it comes back. */
  moved: { merchant: 1, short: false },
  /** The same, and nobody has captured anything. */
  gone: { merchant: 1, short: false },
  /** A reorg removes the refund, and the merchant withdraws its allowance before it comes back. */
  withdrawn: { merchant: 1, short: false },
  "approved early": { merchant: 3, short: false },
  "never approved": { merchant: 4, short: false },
  unpaid: { merchant: 0, short: false },
} as const
export type Story = keyof typeof stories
export const allStories = Object.keys(stories) as Story[]

/** What a merchant asked for, and what it was answered. */
interface Ask {
  what: "capture" | "void" | "refund"
  id: string
  amount: string
}

/** A checkout with its payer and its merchant. */
export interface Deal {
  story: Story
  id: string
  merchant: Merchant
  buyer: PrivateKeyAccount
  amount: bigint
  signed: Signed
  asks: Ask[]
  /** Refusals that nothing explains. */
  refusals: string[]
  /** Whether a reorg was made of it. */
  struck: boolean
}

export interface Play {
  stage: Stage
  deals: Deal[]
  /** Escrows and sessions as the database has them. */
  seen: Map<string, Row<"escrows"> & { status: string }>
  random: () => number
  /** While nobody displaces a block. */
  calm: boolean
  /** As far as the clock is moved on by itself, in milliseconds: a slow machine must not come to the end of a time too early. */
  nudgedTo: number
  signal: AbortSignal
  say: (text: string) => void
}

const wait = () => sleep(REST_MS)
const text = (amount: bigint) => formatAmount(amount, 6)

/** Waits until something is so; throws when it is all over. */
async function until({ signal }: Play, what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) {
    if (signal.aborted) throw new Error(`never: ${what}`)
    await wait()
  }
}

/** Keeps what is known of all escrows current. */
export async function keepSeeing(play: Play): Promise<void> {
  while (!play.signal.aborted) {
    const rows = await play.stage.rig.service.ctx.db
      .selectFrom("escrows")
      .innerJoin("checkout_sessions", "checkout_sessions.id", "escrows.session_id")
      .selectAll("escrows")
      .select("checkout_sessions.status")
      .execute()
    for (const row of rows) play.seen.set(row.session_id, row)
    await sleep(POLL_MS)
  }
}

/** Moves the clock on a little, again and again, so that nothing that waits takes long. */
export async function keepNudging(play: Play): Promise<void> {
  const { stage, signal } = play
  while (!signal.aborted) {
    await sleep(NUDGE_MS)
    if (stage.rig.service.ctx.now().getTime() < play.nudgedTo) pass(stage, NUDGED_MS)
  }
}

interface Answer {
  status: number
  // biome-ignore lint/suspicious/noExplicitAny: whoever reads it expects it.
  body: any
}

/** Where an API process is about to be ended: it is asked first, so that it is soon. */
const doomedOf = ({ playing }: Stage): number =>
  [0, 1].findIndex(place => playing.get(place)?.point !== undefined) === 1 ? 1 : 0

/** A request to one API process or the other, repeated until one answers for good. */
async function request(
  { stage, signal }: Play,
  path: string,
  given: { sub?: string; body?: object; first?: number },
): Promise<Answer> {
  const headers = {
    ...(given.body ? { "content-type": "application/json", "idempotency-key": randomUUID() } : {}),
    ...(given.sub ? { authorization: `Bearer ${given.sub}` } : {}),
  }
  for (let n = given.first ?? doomedOf(stage); ; n++) {
    if (signal.aborted) throw new Error(`never answered: ${path}`)
    const url = stage.apis[n % APIS]
    const body = given.body ? { method: "POST", body: JSON.stringify(given.body) } : {}
    const answer = url
      ? await fetch(`${url}${path}`, { headers, ...body, signal: AbortSignal.timeout(20_000) })
          .then(async response => ({ status: response.status, body: await response.json() }) as Answer)
          .catch(() => undefined)
      : undefined
    if (answer?.status === 500) stage.errors.push(`${path} answered 500: ${JSON.stringify(answer.body)}`)
    if (answer && answer.status < 500 && answer.body.error !== "IDEMPOTENCY_IN_PROGRESS") return answer
    await wait()
  }
}

/** The payer's signature by two clients at once; again where the service says that nothing was paid. */
async function pay(play: Play, deal: Deal): Promise<void> {
  const submit = async (first: number) => {
    const answer = await request(play, "/api/pay/authorize", { body: bodyOf(deal.id, deal.signed), first })
    const isPaid = answer.status === 200 || answer.body.error === "SESSION_ALREADY_CONFIRMED"
    if (!isPaid) deal.refusals.push(`${answer.status} ${JSON.stringify(answer.body)}`)
  }
  await Promise.all([submit(0), submit(1)])
  await until(play, `${deal.story} is reserved`, async () => {
    const status = play.seen.get(deal.id)?.status
    if (status === "pending" && !deal.struck) await submit(0)
    return (play.seen.get(deal.id)?.authorized ?? 0n) > 0n || deal.struck
  })
}

/** What a merchant asks for, repeated while it is refused for a reason that may pass. */
async function ask(play: Play, deal: Deal, what: Ask["what"], amount?: bigint): Promise<boolean> {
  const asked = { sessionId: deal.id, ...(amount === undefined ? {} : { amount: text(amount) }) }
  for (let n = 0; n < TRIES; n++) {
    const path = `/api/console/payments/${what}`
    const { status, body } = await request(play, path, { sub: deal.merchant.sub, body: asked })
    if (status < 300) {
      deal.asks.push({ what, id: body.captureId ?? body.voidId ?? body.refundId, amount: body.amount })
      return true
    }
    if (status !== 409 && status !== 400) deal.refusals.push(`${what}: ${status} ${JSON.stringify(body)}`)
    const seen = play.seen.get(deal.id)
    const left = what === "refund" ? 1n : (seen?.authorized ?? 0n) - (seen?.captured ?? 0n) - (seen?.voided ?? 0n)
    if ((left === 0n && seen?.authorized !== 0n) || deal.struck) return false
    await wait()
  }
  return false
}

const captured = (play: Play, deal: Deal) =>
  until(play, `${deal.story} is captured`, () => (play.seen.get(deal.id)?.captured ?? 0n) > 0n)

/** What the people of a checkout do before any time is over. */
async function act(play: Play, deal: Deal): Promise<void> {
  const { story, amount, merchant } = deal
  const part = amount / 4n
  if (story === "unpaid") return
  await pay(play, deal)
  switch (story) {
    case "automatic":
    case "never approved":
    case "withdrawn":
      await captured(play, deal)
      await ask(play, deal, "refund")
      break
    case "refunded in parts":
      await captured(play, deal)
      await Promise.all([ask(play, deal, "refund", part), ask(play, deal, "refund", 2n * part)])
      break
    case "approved early":
      await captured(play, deal)
      await approve(play.stage, merchant, amount)
      await ask(play, deal, "refund")
      break
    case "captured in parts":
      await Promise.all([ask(play, deal, "capture", part), ask(play, deal, "capture", part)])
      await ask(play, deal, "capture", part)
      await captured(play, deal)
      await Promise.all([ask(play, deal, "void"), ask(play, deal, "refund", part)])
      break
    case "captured and voided":
      await Promise.all([ask(play, deal, "capture", part), ask(play, deal, "void")])
      break
    case "voided":
      await ask(play, deal, "void")
      break
    case "reclaimed":
    case "moved":
      await ask(play, deal, "capture", part)
      break
    default:
  }
}

/** The merchant's wallet allows refunds of so much. */
async function approve(stage: Stage, { wallet }: Merchant, amount: bigint): Promise<void> {
  const spender = stage.rig.network.escrow?.refundCollector as Address
  const data = encodeFunctionData({ abi: erc20Abi, functionName: "approve", args: [spender, amount] })
  await send(stage, wallet, { to: stage.rig.token, data })
}

/** Hands a call of an account to the chain; another one takes its place where this one is lost, or can't be made during a reorg. */
async function send(stage: Stage, account: PrivateKeyAccount, call: { to: Address; data: Hex }): Promise<void> {
  await signedBy(stage, account, call)
    .then(serializedTransaction => stage.rig.anvil.client.sendRawTransaction({ serializedTransaction }))
    .catch(() => {})
}

/** A merchant's wallet, which sends what its refunds ask it to: at once, late, too little at first, or never. */
export async function keepApproving(play: Play, place: number): Promise<void> {
  const merchant = play.stage.merchants[place]
  if (!merchant || place === 4) return
  const asked = new Map<string, number>()
  while (!play.signal.aborted) {
    await sleep(4 * REST_MS)
    const path = "/api/console/payments/refunds?status=needs_approval"
    const { body } = await request(play, path, { sub: merchant.sub }).catch(() => ({ body: { data: [] } }))
    const [first] = body.data ?? []
    if (!first?.approval) continue
    const times = (asked.get(first.refundId) ?? 0) + 1
    asked.set(first.refundId, times)
    if (place === 1 && times < 4) continue
    if (place === 2 && times < 3) await approve(play.stage, merchant, 1n)
    else if (times % 2 === 0 || place === 0) await send(play.stage, merchant.wallet, first.approval.call)
  }
}

/** The payer takes back what is left, as soon as the chain lets it. */
async function reclaim(play: Play, deal: Deal): Promise<void> {
  const { on } = play.stage
  const row = await on.rowOf(deal.id)
  const info = paymentInfoOf(row, deal.buyer.address.toLowerCase() as Address)
  const data = encodeFunctionData({ abi: authCaptureEscrowAbi, functionName: "reclaim", args: [info] })
  await until(play, `${deal.story} is taken back`, async () => {
    // Nobody can be asked while blocks are displaced.
    const state = await on.onChain(deal.id).catch(() => undefined)
    if (state?.capturableAmount === 0n) return true
    await send(play.stage, deal.buyer, { to: row.escrow, data })
    await sleep(2 * REST_MS)
    return false
  })
}

/** Waits until nothing moves by itself any more; without `all`, but for refunds that wait for their merchant's wallet. */
async function quiet(play: Play, what: string, all = false): Promise<void> {
  const { ctx } = play.stage.rig.service
  const never = play.stage.merchants[4]?.id ?? ""
  for (let calm = 0; calm < 2; ) {
    const { rows } = await sql<{ n: number }>`
      select (select count(*) from payouts where state in ('queued', 'assigned', 'mined')
          or (state = 'held' and (${all} or kind <> 'refund' or merchant_id <> ${never})))::int
        + (select count(*) from escrows where run_at <= ${ctx.now()})::int as n`.execute(ctx.db)
    calm = rows[0]?.n === 0 ? calm + 1 : 0
    if (play.signal.aborted) throw new Error(`never: ${what} are over`)
    await wait()
  }
}

/** New checkouts, whose payers have the money for good. */
async function enrol(play: Play, wave: readonly Story[]): Promise<Deal[]> {
  const { rig, on, merchants } = play.stage
  const { client } = rig.anvil
  play.calm = true
  play.nudgedTo = rig.service.ctx.now().getTime() + 500 * TIMES.expires
  await client.setAutomine(true)
  const deals: Deal[] = []
  for (const story of wave) {
    const { merchant: place, short } = stories[story]
    const merchant = merchants[place] as Merchant
    const amount = 4_000_000n + BigInt(Math.floor(play.random() * 4_000_000)) * 4n
    const buyer = await on.buyer(amount)
    await client.setBalance({ address: buyer.address, value: ETHER })
    const isAutomatic = ["automatic", "refunded in parts", "approved early", "never approved", "withdrawn"].includes(
      story,
    )
    const answer = await rig.service.call(
      "POST",
      "/api/console/checkouts",
      {
        amount: text(amount),
        capture: isAutomatic ? "automatic" : "manual",
        expiresIn: TIMES.expires,
        captureWithin: (short ? TIMES.short : TIMES.long) - TIMES.expires,
        refundWithin: TIMES.refund,
      },
      { as: merchant.sub },
    )
    if (answer.status !== 201) throw new Error(JSON.stringify(answer.body))
    const signed = await on.sign(buyer, answer.body.id)
    deals.push({ story, id: answer.body.id, merchant, buyer, amount, signed, asks: [], refusals: [], struck: false })
  }
  await client.mine({ blocks: FINAL_DEPTH })
  await client.setAutomine(false)
  play.deals.push(...deals)
  play.calm = false
  return deals
}

/** Plays some stories as far as their people decide. */
export async function playDeals(play: Play, wave: readonly Story[]): Promise<Deal[]> {
  const deals = await enrol(play, wave)
  await Promise.all(deals.map(deal => act(play, deal)))
  return deals
}

/** Plays some stories from their beginning to the end of all their times. */
export async function playWave(play: Play, wave: readonly Story[]): Promise<void> {
  const { stage } = play
  const { ctx } = stage.rig.service
  const startedAt = ctx.now().getTime()
  const passTo = (seconds: number, what: string) => {
    play.say(what)
    play.nudgedTo = startedAt + (seconds + NUDGED_S) * 1_000
    pass(stage, Math.max(0, startedAt + seconds * 1_000 - ctx.now().getTime()))
  }
  const deals = await playDeals(play, wave)
  await quiet(play, "the calls")
  // The first ends are passed at once, so that the service has no time to release what is left.
  const late = deals.filter(({ story }) => story === "late")
  passTo(TIMES.short - HOUR_S / 4 - 60, "the last minute")
  await Promise.all(late.map(deal => ask(play, deal, "capture")))
  passTo(TIMES.short + 60, "the first authorizations ended")
  await Promise.all(deals.filter(({ story }) => story === "reclaimed").map(deal => reclaim(play, deal)))
  await quiet(play, "the first ends")
  passTo(TIMES.long - HOUR_S / 2, "the time to capture ended")
  await quiet(play, "the releases")
  passTo(TIMES.long + TIMES.refund + 60, "all times ended")
  await quiet(play, "all calls", true)
}
