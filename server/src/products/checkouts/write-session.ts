/** Builds the rows of new sessions, and writes them with their receiving addresses in one statement. */
import { sql } from "kysely"
import type { depositRow } from "../../ledger/deposits/make-deposits.ts"
import { isSellingPaused } from "../../ledger/payouts/check-paused.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import { DatabaseUnavailable } from "../../platform/db/pool.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { KeptAnswer } from "../../platform/http/run-idempotently.ts"
import { newId } from "../../platform/ids.ts"
import { traceparentNow } from "../../platform/tracing/trace.ts"
import { firstMessage } from "../escrow/words.ts"
import type { OfferedLink, OfferedProduct } from "./load-offer.ts"
import type { CheckoutCreate } from "./schema.ts"

const DEFAULT_LIFE_S = 86_400
/**
 * How long after a session's end anyone may send its remaining money to its owner. Until then, late payments are
 * found.
 */
const OPEN_AFTER_MS = 30 * 86_400_000

/** What a session sells, from a request, a link or a subscription. */
export interface SessionTerms {
  network: NetworkInfo
  amount: bigint
  link: OfferedLink | undefined
  product: OfferedProduct | undefined
  splitId: string | null
  /** The current set of recipients that share the payment; undefined if the merchant gets everything. */
  setId: bigint | undefined
}

/** The resource of a session's receiving address, and when anyone may empty that address. */
export const depositOf = ({ id, expires_at }: Pick<Row<"checkout_sessions">, "id" | "expires_at">) => ({
  resourceId: id,
  opensAt: new Date(expires_at.getTime() + OPEN_AFTER_MS),
})

/** Builds the row of a new, unpaid session. */
export function sessionRow(
  ctx: TxContext,
  merchantId: string,
  { network, amount, link, product, splitId, setId }: SessionTerms,
  body: CheckoutCreate & { expiresAt?: Date },
  agentCaller?: string,
) {
  const now = ctx.now()
  const expiresAt = body.expiresAt ?? new Date(now.getTime() + (body.expiresIn ?? DEFAULT_LIFE_S) * 1_000)
  const { capture = "direct" } = body
  const json = (value: unknown) => (value === undefined ? null : JSON.stringify(value))
  return {
    id: newId("cs"),
    merchant_id: merchantId,
    chain_id: network.chainId,
    amount,
    currency: network.token.symbol,
    description: body.description ?? link?.description ?? link?.title ?? product?.name ?? null,
    redirect_url: body.redirectUrl ?? link?.redirect_url ?? null,
    callback_url: body.callbackUrl ?? null,
    link_id: link?.id ?? null,
    product_id: product?.id ?? null,
    split_id: splitId,
    recipient_set_id: setId ?? null,
    customer_email: body.customerEmail ?? null,
    payer_fields: json(body.payerFields ?? body.payerInfo ?? link?.payer_fields ?? undefined),
    payer_info: null,
    metadata: json(body.metadata),
    status: "pending" as const,
    capture,
    message: capture === "direct" ? null : firstMessage(amount, network.token),
    agent: agentCaller !== undefined,
    agent_caller: agentCaller ?? null,
    expires_at: expiresAt,
    run_at: capture === "direct" ? expiresAt : null,
    created_at: now,
    updated_at: now,
    traceparent: traceparentNow(ctx),
  }
}

/** JSON columns are passed as text, because they must be stored as they were written. */
const TYPES = {
  id: "text",
  merchant_id: "text",
  chain_id: "integer",
  amount: "numeric",
  currency: "text",
  description: "text",
  redirect_url: "text",
  callback_url: "text",
  link_id: "text",
  product_id: "text",
  split_id: "text",
  recipient_set_id: "bigint",
  customer_email: "text",
  payer_fields: "jsonb",
  payer_info: "jsonb",
  metadata: "jsonb",
  status: "text",
  capture: "text",
  message: "text",
  agent: "boolean",
  agent_caller: "text",
  expires_at: "timestamptz",
  run_at: "timestamptz",
  created_at: "timestamptz",
  updated_at: "timestamptz",
  traceparent: "text",
} as const satisfies Record<keyof ReturnType<typeof sessionRow>, string>

/** The session as the database returns it after the insert; `body` is the request's body. */
export const unpaidSession = (row: ReturnType<typeof sessionRow>, body: Pick<CheckoutCreate, "metadata">): Session => ({
  ...row,
  metadata: body.metadata ?? null,
  payer_fields: row.payer_fields === null ? null : JSON.parse(row.payer_fields),
  payer_info: null,
  exception: null,
  received: 0n,
  payer: null,
  tx_hash: null,
  confirmed_at: null,
  erased_at: null,
  event_sequence: 0,
  notified_paid: false,
})

/** The columns of a stored answer. `id` is the session that the answer belongs to. */
const KEPT_TYPES = {
  id: "text",
  merchant_id: "text",
  route: "text",
  key: "text",
  request_hash: "text",
  status: "integer",
  answer: "text",
  kept_s: "integer",
} as const satisfies Record<keyof KeptAnswer | "id", string>

const DEPOSIT_TYPES = {
  chain_id: "integer",
  address: "text",
  factory: "text",
  salt: "text",
  owner: "text",
  approver: "text",
  payees_hash: "text",
  recipient_set_id: "bigint",
  open_after_s: "bigint",
  resource_id: "text",
  created_at: "timestamptz",
  watched_until: "timestamptz",
} as const satisfies Record<keyof ReturnType<typeof depositRow>, string>

/** The SQL for rows passed as JSON: their column names, their columns with types, and the cells of a row `g`. */
function written(types: Record<string, string>) {
  const all = Object.entries(types)
  return {
    names: sql.raw(Object.keys(types).join(", ")),
    columns: all.map(([name, type]) => `${name} ${type === "jsonb" ? "text" : type}`).join(", "),
    cells: sql.raw(all.map(([name, type]) => (type === "jsonb" ? `g.${name}::jsonb` : `g.${name}`)).join(", ")),
  }
}
const SESSION = written(TYPES)
const DEPOSIT = written(DEPOSIT_TYPES)
const KEPT = written(KEPT_TYPES)

/** Converts a row for JSON: bigints become text, because they may exceed 2⁵³. */
const asParameter = (row: object) =>
  Object.fromEntries(Object.entries(row).map(([name, value]) => [name, typeof value === "bigint" ? `${value}` : value]))

/** A session to write, with its receiving address; undefined if an escrow is paid instead. */
interface NewSession {
  session: ReturnType<typeof sessionRow>
  deposit: ReturnType<typeof depositRow> | undefined
  /** The answer to store with the session. */
  kept?: KeptAnswer | undefined
  settings: TxContext["settings"]
}

type Session = Row<"checkout_sessions">

/**
 * Writes a session, with its receiving address unless it uses an escrow, and with the answer to store, if any.
 * Returns false and writes nothing while selling is paused on the session's network, or if the answer's key is
 * already stored. Concurrent sessions share a statement: Postgres needs 0.10 ms for each of ten, and 0.24 ms for a
 * single one.
 */
export async function writeSession(ctx: TxContext, rows: Omit<NewSession, "settings">): Promise<boolean> {
  const written = await writtenOf(ctx.db, { ...rows, settings: ctx.settings })
  if (written instanceof Error) throw written
  return written ?? false
}

const writtenOf = gatherRows(async (db: Db, all: readonly NewSession[]): Promise<Map<NewSession, true | Error>> => {
  try {
    return await writeAll(db, all)
  } catch (error) {
    // If the database gave no answer, it is unknown what was written.
    if (all.length === 1 || (error instanceof DatabaseUnavailable && !wasTooLong(error))) throw error
    // No session was written. Each is retried alone, so that none fails because of another session's fault, or waits
    // for another session's lock.
    const alone = await Promise.all(
      all.map(async each => {
        const written = await writeAll(db, [each]).catch((error: Error) => error)
        return [each, written instanceof Error ? written : written.get(each)] as const
      }),
    )
    return new Map(alone.flatMap(([each, written]) => (written ? [[each, written]] : [])))
  }
})

/** Whether Postgres ended the statement because it, or a lock, took too long. Nothing was written then. */
const wasTooLong = ({ cause }: DatabaseUnavailable): boolean =>
  /^(55P03|57014)$/.test(`${(cause as { code?: unknown } | undefined)?.code}`)

async function writeAll(db: Db, all: readonly NewSession[]): Promise<Map<NewSession, true>> {
  const [first] = all
  if (!first) return new Map()
  const { sessions, deposits, answers } = parametersOf(all)
  // Most checkouts have no idempotency key. Without answers to store, the statement is shorter.
  const kept = answers.length > 0 && {
    tables: sql`asked as materialized (${rowsParameter(answers, KEPT.columns)}),
      kept as (insert into idempotency_keys (merchant_id, route, key, request_hash, status, answer, expires_at)
        select a.merchant_id, a.route, a.key, a.request_hash, a.status, a.answer, clock_timestamp() + make_interval(secs => a.kept_s)
        from asked a join sold on sold.id = a.id
        order by a.merchant_id, a.route, a.key
        on conflict do nothing returning merchant_id, route, key),`,
    isFree: sql`where not exists (select from asked a where a.id = g.id)
      or exists (select from asked a join kept using (merchant_id, route, key) where a.id = g.id)`,
  }
  const { rows } = await sql<{ id: string }>`
    /* named: ${sql.raw(kept ? "write_sessions_once" : "write_sessions")} */ with sold as (
      select * from (${rowsParameter(sessions, SESSION.columns)}) g where not ${isSellingPaused(first, sql`g.chain_id`)}),
    ${kept ? kept.tables : sql``}
    made as (insert into checkout_sessions (${SESSION.names}) select ${SESSION.cells} from sold g ${kept ? kept.isFree : sql``}
      returning id),
    paid_at as (
      insert into deposits (${DEPOSIT.names}) select ${DEPOSIT.cells}
      from (${rowsParameter(deposits, DEPOSIT.columns)}) g join made on made.id = g.resource_id)
    select id from made`.execute(db)
  const made = new Set(rows.map(({ id }) => id))
  return new Map(all.flatMap(each => (made.has(each.session.id) ? [[each, true]] : [])))
}

/** The rows to write. Requests with the same key write only the first; the others find its answer. */
function parametersOf(all: readonly NewSession[]) {
  const byKey = new Map(
    all
      .toReversed()
      .flatMap(each =>
        each.kept ? [[JSON.stringify([each.kept.merchant_id, each.kept.route, each.kept.key]), each]] : [],
      ),
  )
  const firsts = new Set(byKey.values())
  const written = all.filter(each => !each.kept || firsts.has(each))
  return {
    sessions: written.map(({ session }) => asParameter(session)),
    deposits: written.flatMap(({ deposit }) => (deposit ? [asParameter(deposit)] : [])),
    answers: written.flatMap(({ session: { id }, kept }) => (kept ? [{ id, ...kept }] : [])),
  }
}
