/** Subscriptions as rows, as the job leaves them: for tests of what subscribers see, each with the state it needs. */
import { sql } from "kysely"
import { expect } from "vitest"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import type { TxContext } from "../src/platform/context.ts"
import type { BillingInterval, Row } from "../src/platform/db/schema.ts"
import { newId } from "../src/platform/ids.ts"
import type { TestService } from "./service.ts"

const DAY_MS = 86_400_000
let hashes = 0

interface ProductMade {
  interval?: BillingInterval
  trialDays?: number
  name?: string
  price?: number
}

/** A monthly product of a merchant, unless it is said otherwise; answers its id. */
export async function newRecurring(
  service: TestService,
  as: string,
  { interval = "month", trialDays = 0, ...body }: ProductMade = {},
): Promise<string> {
  const made = await service.call("POST", "/api/console/products", { name: "Press pass", price: 5, ...body }, { as })
  expect(made.status, JSON.stringify(made.body)).toBe(201)
  const billing = { billing_interval: interval, billing_count: 1, trial_days: trialDays }
  await service.ctx.db.updateTable("products").set(billing).where("id", "=", made.body.id).execute()
  return made.body.id
}

/** What an invoice and its session are made as, beside what follows from their product. */
export interface InvoiceMade {
  invoice?: Partial<Row<"invoices">>
  session?: Partial<Row<"checkout_sessions">>
}

/** A subscription that `payer` began a day ago and has paid for a month, unless `change` says otherwise. */
export async function newSubscription(
  service: TestService,
  as: string,
  productId: string,
  payer: string,
  change: Partial<Row<"subscriptions">> = {},
  first: InvoiceMade = {},
): Promise<{ id: string; invoiceId: string; sessionId: string }> {
  const { ctx } = service
  const product = await ctx.db.selectFrom("products").selectAll().where("id", "=", productId).executeTakeFirstOrThrow()
  const now = ctx.now()
  const started = new Date(now.getTime() - DAY_MS)
  const paidUntil = new Date(now.getTime() + 29 * DAY_MS)
  const { id } = await ctx.db
    .insertInto("subscriptions")
    .values({
      id: newId("sub"),
      merchant_id: product.merchant_id,
      chain_id: product.chain_id,
      product_id: productId,
      billing_interval: product.billing_interval ?? "month",
      billing_count: 1,
      trial_days: product.trial_days,
      payer: payer.toLowerCase() as Address,
      started_at: started,
      anchor: started,
      status: "active",
      paid_until: paidUntil,
      access_until: new Date(paidUntil.getTime() + 3 * DAY_MS),
      max_periods: null,
      customer_email: "ada@secret.example",
      created_at: started,
      updated_at: now,
      ...change,
    })
    .returning("id")
    .executeTakeFirstOrThrow()
  const paid = { period_start: started, period_end: paidUntil, due_at: started, paid_at: started }
  const made = await newInvoice(service, as, id, {
    invoice: { ...paid, ...first.invoice },
    session: { status: "confirmed", confirmed_at: started, received: product.price, tx_hash: hash(), ...first.session },
  })
  return { id, ...made }
}

/** The next invoice of a subscription, open and due in two days unless it is said otherwise. */
export async function newInvoice(
  service: TestService,
  as: string,
  subscriptionId: string,
  { invoice = {}, session = {} }: InvoiceMade = {},
): Promise<{ invoiceId: string; sessionId: string }> {
  const { db } = service.ctx
  const subscription = await db
    .selectFrom("subscriptions")
    .innerJoin("products", "products.id", "subscriptions.product_id")
    .select(["products.id", "products.merchant_id", "products.price", "products.currency", "products.name"])
    .where("subscriptions.id", "=", subscriptionId)
    .executeTakeFirstOrThrow()
  const answer = await service.call("POST", "/api/console/checkouts", { amount: "5.00" }, { as })
  expect(answer.status, JSON.stringify(answer.body)).toBe(201)
  const sessionId: string = answer.body.id
  const ends = { expires_at: new Date(service.ctx.now().getTime() + 32 * DAY_MS), product_id: subscription.id }
  await db
    .updateTable("checkout_sessions")
    .set({ ...ends, ...session, metadata: JSON.stringify({ order: "secret" }) } as object)
    .where("id", "=", sessionId)
    .execute()
  const sequence = db.selectFrom("invoices").select(({ fn }) => fn.countAll<number>().as("n"))
  const { n } = await sequence.where("subscription_id", "=", subscriptionId).executeTakeFirstOrThrow()
  const due = new Date(service.ctx.now().getTime() + 2 * DAY_MS)
  const made = await db
    .insertInto("invoices")
    .values({
      id: newId("inv"),
      subscription_id: subscriptionId,
      merchant_id: subscription.merchant_id,
      sequence: Number(n) + 1,
      session_id: sessionId,
      product_id: subscription.id,
      amount: subscription.price,
      currency: subscription.currency,
      due_at: due,
      period_start: due,
      period_end: new Date(due.getTime() + 30 * DAY_MS),
      created_at: service.ctx.now(),
      updated_at: service.ctx.now(),
      ...invoice,
    })
    .returning("id")
    .executeTakeFirstOrThrow()
  // What is overdue lets its subscriber in for three days, and no longer.
  const { due_at: dueAt, paid_at: paidAt } = invoice
  if (dueAt && !paidAt && new Date(dueAt) < service.ctx.now())
    await db
      .updateTable("subscriptions")
      .set({ access_until: new Date(new Date(dueAt).getTime() + 3 * DAY_MS) })
      .where("id", "=", subscriptionId)
      .where("status", "is not", null)
      .execute()
  return { invoiceId: made.id, sessionId }
}

const hash = (): Hash => `0x${(++hashes).toString(16).padStart(64, "5")}` as Hash

/** So many subscriptions of one product, paid six days ago, whose next invoice is to be made now; without deposits and payments. */
export async function fillSubscriptions(
  ctx: TxContext,
  merchantId: string,
  productId: string,
  count: number,
): Promise<void> {
  const numbers = sql`generate_series(1, ${sql.lit(count)}) as i`
  const id = (prefix: string) => sql`(${sql.lit(prefix)} || lpad(i::text, 24, '0'))`
  const payer = sql`('0x' || substr(md5(i::text) || md5('x' || i), 1, 40))`
  const now = sql`${ctx.now()}::timestamptz`
  const start = sql`${now} - interval '6 days'`
  const end = sql`${now} + interval '1 day'`
  await sql`insert into checkout_sessions (id, merchant_id, chain_id, amount, currency, status, received, tx_hash, payer, confirmed_at,
      product_id, expires_at, created_at, updated_at)
    select ${id("cs_")}, ${merchantId}, 84532, 5000000, 'USDC', 'confirmed', 5000000, '0x' || md5(i::text) || md5('x' || i), ${payer},
      ${start}, ${productId}, ${end}, ${start}, ${start} from ${numbers}`.execute(ctx.db)
  await sql`insert into subscriptions (id, merchant_id, chain_id, product_id, billing_interval, billing_count, trial_days, payer, started_at,
      anchor, status, paid_until, access_until, run_at, created_at, updated_at)
    select ${id("sub_")}, ${merchantId}, 84532, ${productId}, 'week', 1, 0, ${payer}, ${start}, ${start}, 'active', ${end},
      ${end} + interval '3 days', ${now}, ${start}, ${start} from ${numbers}`.execute(ctx.db)
  await sql`insert into invoices (id, subscription_id, merchant_id, sequence, session_id, product_id, amount, currency, period_start,
      period_end, due_at, paid_at, created_at, updated_at)
    select ${id("inv_")}, ${id("sub_")}, ${merchantId}, 1, ${id("cs_")}, ${productId}, 5000000, 'USDC', ${start}, ${end}, ${start},
      ${start}, ${start}, ${start} from ${numbers}`.execute(ctx.db)
}
