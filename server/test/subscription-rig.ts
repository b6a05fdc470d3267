/** Subscriptions in a test: a service on a network of paper, whose clock stands still until it is moved. */
import { randomBytes } from "node:crypto"
import { settleDue } from "../src/ledger/settlement/settle.ts"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import type { Settings } from "../src/platform/config/settings.ts"
import type { Row } from "../src/platform/db/schema.ts"
import { advanceSubscriptions } from "../src/products/subscriptions/advance-subscriptions.ts"
import { paperNetwork, startService, type TestService } from "./service.ts"

const DAY_MS = 86_400_000
const randomHash = () => `0x${randomBytes(32).toString("hex")}` as Hash
/** Who pays, unless a test says otherwise. */
export const SUBSCRIBER = `0x${"ab".repeat(20)}` as Address

// biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
type Body = any

export interface SubscriptionRig {
  service: TestService
  /** Empties the database, with a shop that can sell. */
  begin(at: string): Promise<void>
  now(): Date
  /** Moves the clock, without a look. */
  to(at: string | Date): void
  call(method: "GET" | "POST" | "PUT" | "DELETE", path: string, body?: object): Promise<{ status: number; body: Body }>
  product(terms?: object): Promise<string>
  /** A checkout of the product. */
  start(productId: string, more?: object): Promise<string>
  /** A transfer of what a session costs (or `value`), mined now (or `at`), and settled. */
  pay(
    sessionId: string,
    options?: { from?: Address; at?: Date; state?: "seen" | "confirmed" | "final"; value?: bigint },
  ): Promise<void>
  /** All transfers are final now. */
  finalize(): Promise<void>
  /** A reorg removes what was paid for a session, or brings it back. */
  reorg(sessionId: string, state: "gone" | "confirmed"): Promise<void>
  /** The chain makes a block, and all that is due is settled and advanced. */
  look(): Promise<void>
  /** A subscription that was paid for now. */
  subscribed(terms?: object, more?: object): Promise<string>
  read(id: string): Promise<Body>
  /** The invoices of a subscription in their order, the first part of each time only. */
  invoices(id: string): Promise<Row<"invoices">[]>
  /** The open invoice's session. */
  open(id: string): Promise<string>
  ask(id: string, what: "pause" | "resume" | "cancel", body?: object): Promise<{ status: number; body: Body }>
  /** The data of all events of subscriptions, each with its type, in their order. */
  events(): Promise<Body[]>
  stop(): Promise<void>
}

/** Starts it. */
export async function startSubscriptionRig(settings: Partial<Settings> = {}): Promise<SubscriptionRig> {
  const service = await startService({ settings })
  const { ctx } = service
  let clock = new Date()
  ctx.now = () => new Date(clock)
  const call: SubscriptionRig["call"] = (method, path, body) =>
    service.call(method, `/api/console/${path}`, body, { as: "shop" })
  const made = async (path: string, body: object): Promise<Body> => {
    const answer = await call("POST", path, body)
    if (answer.status !== 201) throw new Error(JSON.stringify(answer.body))
    return answer.body
  }
  const blockAt = (time: Date) => ctx.db.updateTable("cursors").set({ block_time: time }).execute()
  const settle = () => settleDue(ctx, paperNetwork)

  const rig: SubscriptionRig = {
    service,
    call,
    now: () => new Date(clock),
    to: at => {
      clock = new Date(at)
    },
    begin: async at => {
      await service.empty()
      clock = new Date(at)
      await service.merchant("shop")
      const at_1 = {
        block_number: 1n,
        block_hash: randomHash(),
        block_time: clock,
        finalized_number: 1n,
        run_at: clock,
      }
      await ctx.db
        .insertInto("cursors")
        .values({ chain_id: paperNetwork.chainId, ...at_1 })
        .execute()
    },
    product: async terms =>
      (await made("products", { name: "Magazine", price: "5.00", billingInterval: "month", ...terms })).id,
    start: async (productId, more) => (await made("checkouts", { productId, ...more })).id,
    pay: async (sessionId, { from = SUBSCRIBER, at = clock, state = "final", value } = {}) => {
      const deposit = await ctx.db
        .selectFrom("deposits")
        .selectAll()
        .where("resource_id", "=", sessionId)
        .executeTakeFirstOrThrow()
      const { amount } = await ctx.db
        .selectFrom("checkout_sessions")
        .select("amount")
        .where("id", "=", sessionId)
        .executeTakeFirstOrThrow()
      await ctx.db
        .insertInto("transfers")
        .values({
          chain_id: paperNetwork.chainId,
          tx_hash: randomHash(),
          token: paperNetwork.token.address,
          to_address: deposit.address,
          k: 0,
          deposit_id: deposit.id,
          from_address: from,
          value: value ?? amount,
          block_number: 1n,
          block_hash: randomHash(),
          log_index: 0,
          block_time: at,
          state,
          run_at: clock,
          created_at: clock,
        })
        .execute()
      await settle()
    },
    finalize: async () => {
      await ctx.db.updateTable("transfers").set({ state: "final" }).where("state", "=", "confirmed").execute()
    },
    reorg: async (sessionId, state) => {
      const { id } = await ctx.db
        .selectFrom("deposits")
        .select("id")
        .where("resource_id", "=", sessionId)
        .executeTakeFirstOrThrow()
      await ctx.db.updateTable("transfers").set({ state, run_at: clock }).where("deposit_id", "=", id).execute()
      await settle()
    },
    look: async () => {
      for (let i = 0; i < 20; i++) {
        clock = new Date(clock.getTime() + 1)
        await blockAt(new Date(clock.getTime() + 31_000))
        await settle()
        await advanceSubscriptions(ctx)
        const due = await ctx.db
          .selectFrom("subscriptions")
          .select("id")
          .where("run_at", "<=", clock)
          .union(ctx.db.selectFrom("checkout_sessions").select("id").where("run_at", "<=", clock))
          .execute()
        if (due.length === 0) return
      }
      throw new Error("what is due is never over")
    },
    subscribed: async (terms, more) => {
      const session = await rig.start(await rig.product(terms), more)
      await rig.pay(session)
      await advanceSubscriptions(ctx)
      const { subscription_id } = await ctx.db
        .selectFrom("invoices")
        .select("subscription_id")
        .where("session_id", "=", session)
        .executeTakeFirstOrThrow()
      return subscription_id
    },
    read: async id => (await call("GET", `subscriptions/${id}`)).body,
    invoices: id =>
      ctx.db.selectFrom("invoices").selectAll().where("subscription_id", "=", id).orderBy("sequence").execute(),
    open: async id => {
      const last = (await rig.invoices(id)).at(-1)
      if (!last || last.paid_at || last.voided_at) throw new Error("no invoice is open")
      return last.session_id
    },
    ask: (id, what, body) => call("POST", `subscriptions/${id}/${what}`, body),
    events: async () => {
      const rows = await ctx.db
        .selectFrom("events")
        .select(["type", "body"])
        .where("type", "like", "subscription.%")
        .execute()
      const events = rows.map(({ type, body }) => ({
        type: type.slice("subscription.".length),
        ...JSON.parse(body).data,
      }))
      return events.sort((a, b) => a.sequence - b.sequence)
    },
    stop: () => service.stop(),
  }
  return rig
}

/** A time so many days later. */
export const later = (from: Date, days: number): Date => new Date(from.getTime() + days * DAY_MS)
