/** Reads the rows from which a checkout is shown. Concurrent reads of any number of checkouts share a statement. */
import { sql } from "kysely"
import { wasAskedFor, watchEnds } from "../../ledger/deposits/make-deposits.ts"
import { type HaltedWallets, haltedWalletsCell } from "../../ledger/payouts/check-paused.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { ChainInfo } from "../../platform/chain/network-facts.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"

/** The columns that anyone with a session's id may see, and those that decide what is shown. */
const SHOWN = [
  "id",
  "merchant_id",
  "chain_id",
  "amount",
  "currency",
  "description",
  "redirect_url",
  "product_id",
  "payer_fields",
  "status",
  "capture",
  "exception",
  "received",
  "message",
  "tx_hash",
  "expires_at",
  "event_sequence",
] as const satisfies readonly (keyof Row<"checkout_sessions">)[]

/** The part of a session that anyone with its id may see. */
export type ShownSession = Pick<Row<"checkout_sessions">, (typeof SHOWN)[number]>

/** The other columns. The type makes sure that none is missing. */
const OTHERS: Record<Exclude<keyof Row<"checkout_sessions">, keyof ShownSession>, true> = {
  callback_url: true,
  link_id: true,
  customer_email: true,
  payer_info: true,
  metadata: true,
  split_id: true,
  recipient_set_id: true,
  payer: true,
  confirmed_at: true,
  run_at: true,
  agent: true,
  agent_caller: true,
  created_at: true,
  updated_at: true,
  notified_paid: true,
  traceparent: true,
  erased_at: true,
}
/** All columns of a session. Named statements list them, because a migration changes the meaning of `*`. */
const SESSION_COLUMNS: readonly string[] = [...SHOWN, ...Object.keys(OTHERS)]

/** A requested session, and the time of the request. */
export interface SessionAsked {
  id: string
  /** The submission to report; without a hash, the newest. */
  txHash?: Hash | undefined
  now: Date
  chain: ChainInfo
}

/** A session and everything that its state depends on, from one snapshot. */
export interface SessionState {
  session: ShownSession
  /** The session's receiving address; undefined if a signature reserves money in an escrow. */
  deposit: Pick<Row<"deposits">, "address" | "factory" | "older_factory"> | undefined
  halted: HaltedWallets | null
  /** How many blocks are above the newest transfer, or above the escrow's reservation; null if there is neither. */
  above: bigint | null
  submission: Pick<Row<"submissions">, "tx_hash" | "status" | "reason" | "message"> | undefined
  /** How much of the settlement token the merchant returned, in base units: whole payments and surpluses. */
  returned: bigint
  /** Whether a request for the session must extend the watch of its address. */
  isWatchEnding: boolean
}

type StateRow = ShownSession & {
  n: number
  is_put_away: boolean
  pay_to: Address | null
  factory: Address
  older_factory: boolean
  is_watch_ending: boolean
  halted: HaltedWallets | null
  above: bigint | null
  submitted: Hash | null
  submission_status: Row<"submissions">["status"]
  submission_reason: Row<"submissions">["reason"]
  submission_message: string
  returned: bigint | null
}

/** A session's state: `put away` if `bringBack` must restore its rows, undefined if it never existed. */
export const sessionState = gatherRows(async (db: Db, asked: readonly SessionAsked[]) => {
  const shown = SHOWN.map(name => `s.${name}`).join(", ")
  const rows = await readStates(db, asked, { name: "session_states", columns: shown })
  return new Map(rows.map(([of, row]) => [of, row.is_put_away ? ("put away" as const) : stateOf(row)]))
})

/** A session for its merchant, with the slug of its link. */
export type OwnState = Omit<SessionState, "session"> & { session: Row<"checkout_sessions">; slug: string | null }

/** A session's state for its merchant, with all columns. */
export const ownState = gatherRows(async (db: Db, asked: readonly SessionAsked[]) => {
  const all = SESSION_COLUMNS.map(name => `s.${name}`).join(", ")
  const columns = `${all}, (select l.slug from payment_links l where l.id = s.link_id) as slug`
  const rows = await readStates(db, asked, { name: "own_sessions", columns })
  return new Map(
    rows.map(([of, row]) => {
      const whole = row as StateRow & Pick<OwnState, "slug"> & Row<"checkout_sessions">
      return [of, row.is_put_away ? ("put away" as const) : { ...stateOf(row), session: whole, slug: whole.slug }]
    }),
  )
})

/** Reads the rows of sessions, whether put away or not. Each statement name always has the same text. */
async function readStates(
  db: Db,
  asked: readonly SessionAsked[],
  { name, columns }: { name: string; columns: string },
): Promise<[SessionAsked, StateRow][]> {
  const [first] = asked
  const tokens = first?.chain.networks.map(({ chainId, token }) => [chainId, token.address]) ?? []
  const now = first?.now ?? new Date()
  const wanted = asked.map(({ id, txHash = null }, n) => ({ n, id, hash: txHash }))
  const { rows } = await sql<StateRow>`
    select ${sql.raw(`/* named: ${name} */`)} k.n, ${sql.raw(columns)},
      s.id is null and exists (select from put_away p where p.id = k.id) as is_put_away,
      d.address as pay_to, d.factory, d.older_factory,
      coalesce(${watchEnds(now)} or not ${wasAskedFor("d")}, false) as is_watch_ending,
      ${haltedWalletsCell} as halted, c.block_number - coalesce(t.block_number, i.block_number) as above,
      u.tx_hash as submitted, u.status as submission_status, u.reason as submission_reason, u.message as submission_message,
      (select sum(case p.status when 'returned' then p.amount else r.amount end)::numeric(78,0)
        from payments p left join surpluses r on r.payment_id = p.id and r.state = 'returned'
        where p.resource_id = s.id and p.token = ${JSON.stringify(Object.fromEntries(tokens))}::jsonb ->> s.chain_id::text
          and (p.status = 'returned' or (p.status = 'granted' and r.amount is not null))) as returned
    from (${rowsParameter(wanted, "n integer, id text, hash text")}) k
      left join checkout_sessions s on s.id = k.id
      left join deposits d on d.resource_id = s.id
      left join cursors c on c.chain_id = s.chain_id
      left join lateral (select t.block_number from transfers t where t.deposit_id = d.id and t.state <> 'gone'
        order by t.block_number desc limit 1) t on true
      left join lateral (select i.block_number from payouts i where i.escrow_id = s.id and i.kind = 'reserve' and i.succeeded
        and i.block_number is not null and s.capture <> 'direct' limit 1) i on true
      left join lateral (select u.tx_hash, u.status, u.reason, u.message from submissions u
        where u.resource_id = s.id and (k.hash is null or u.tx_hash = k.hash)
        order by u.submitted_at desc, u.id desc limit 1) u on true`.execute(db)
  return rows.flatMap((row): [SessionAsked, StateRow][] => {
    const of = asked[row.n]
    return of && (row.is_put_away || row.id !== null) ? [[of, row]] : []
  })
}

function stateOf(row: StateRow): SessionState {
  const { pay_to, factory, older_factory, halted, above, submitted, returned, is_watch_ending } = row
  const { submission_status: status, submission_reason: reason, submission_message: message } = row
  return {
    session: row,
    deposit: pay_to === null ? undefined : { address: pay_to, factory, older_factory },
    halted,
    above,
    submission: submitted === null ? undefined : { tx_hash: submitted, status, reason, message },
    returned: returned ?? 0n,
    isWatchEnding: is_watch_ending,
  }
}

/** The key of {@link returnedAt}: a session and its settlement token. */
export const returnedKey = (sessionId: string, token: Address): string => `${sessionId} ${token}`

/**
 * How much of these sessions' money the merchants returned, in base units, by {@link returnedKey}: whole payments and
 * surpluses. A session without returns has no entry.
 */
export async function returnedAt(db: Db, keys: readonly string[]): Promise<Map<string, bigint>> {
  const wanted = keys.map(key => ({ key, id: key.slice(0, -43), token: key.slice(-42) }))
  const { rows } = await sql<{ key: string; returned: bigint }>`
    select /* named: returned_at */ k.key, sum(case p.status when 'returned' then p.amount else s.amount end)::numeric(78,0) as returned
    from (${rowsParameter(wanted, "key text, id text, token text")}) k
      join payments p on p.resource_id = k.id and p.token = k.token
      left join surpluses s on s.payment_id = p.id and s.state = 'returned'
    where p.status = 'returned' or (p.status = 'granted' and s.amount is not null)
    group by k.key`.execute(db)
  return new Map(rows.map(row => [row.key, row.returned]))
}
