/**
 * Reads everything that decides whether an authorization may pay a checkout, in one statement and so in one snapshot.
 */
import { sql } from "kysely"
import { wasAskedFor, watchEnds } from "../../ledger/deposits/make-deposits.ts"
import { type HaltedWallets, haltedWalletsCell } from "../../ledger/payouts/check-paused.ts"
import { wasSigned } from "../../ledger/relays/read-relay-status.ts"
import { isArriving } from "../../ledger/relays/try-relay.ts"
import type { Authorization } from "../../platform/chain/authorizations.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"

/** A relay for the checkout or with the requested nonce, in JSON form. */
type ReadRelay = Pick<Row<"payouts">, "id" | "kind" | "state" | "payer" | "auth_nonce" | "auth_digest" | "succeeded"> &
  Pick<Row<"payouts">, "tx_hash" | "data"> & { deposit_id: string | null; was_signed: boolean }

/** A relay that was created for the same checkout or nonce. */
export type EarlierRelay = Omit<ReadRelay, "deposit_id"> & { deposit_id: bigint | null }

/** A session that is paid at an address, and its payments and signatures so far. Amounts are in base units. */
export interface Authorizable {
  session: Pick<
    Row<"checkout_sessions">,
    "id" | "merchant_id" | "chain_id" | "amount" | "status" | "expires_at" | "traceparent"
  >
  deposit: Pick<Row<"deposits">, "id" | "address" | "factory" | "older_factory">
  halted: HaltedWallets | null
  /** Whether other sessions took all uses of the session's link, so that more money would only create open payments. */
  isLinkUsedUp: boolean
  /** The sum of the money at the address that counts, or will count once it is confirmed. */
  arriving: bigint
  /** How many of the payer's relays are waiting or in flight on the network. */
  open: number
  /** The relays that pay this checkout. */
  ofSession: EarlierRelay[]
  /** The relays with the payer's nonce. */
  ofNonce: EarlierRelay[]
  isWatchEnding: boolean
}

type Read = Authorizable["session"] &
  Pick<Authorizable, "halted" | "arriving" | "open"> & {
    capture: Row<"checkout_sessions">["capture"]
    deposit_id: bigint | null
    address: Authorizable["deposit"]["address"]
    factory: Authorizable["deposit"]["factory"]
    older_factory: boolean
    is_link_used_up: boolean
    is_watch_ending: boolean
    relays: ReadRelay[] | null
  }

/** Reads the facts for a session and an authorization; undefined if the session reserves money in an escrow. */
export async function loadAuthorizable(
  ctx: TxContext,
  id: string,
  { from, nonce }: Pick<Authorization, "from" | "nonce">,
): Promise<Authorizable | undefined> {
  const tokens = ctx.chain.networks.map(({ chainId, token }) => [chainId, token.address])
  const { rows } = await sql<Read>`
    select /* named: authorizable_sessions */ s.id, s.merchant_id, s.chain_id, s.amount, s.status, s.capture, s.expires_at,
      s.traceparent, d.id as deposit_id, d.address, d.factory, d.older_factory, ${haltedWalletsCell} as halted,
      coalesce(l.uses >= l.max_uses, false) as is_link_used_up,
      coalesce(${watchEnds(ctx.now())} or not ${wasAskedFor("d")}, false) as is_watch_ending,
      (select coalesce(sum(t.value), 0)::numeric(78,0) from transfers t left join claims c on c.transfer_id = t.id
        where t.deposit_id = d.id and t.token = k.token and ${isArriving}) as arriving,
      (select count(*)::int from payouts i where i.chain_id = s.chain_id and i.lane = 'relay'
        and i.state in ('queued', 'held', 'assigned') and i.payer = ${from}) as open,
      (select jsonb_agg(jsonb_build_object('id', payouts.id, 'kind', payouts.kind, 'state', payouts.state, 'payer', payouts.payer,
          'auth_nonce', payouts.auth_nonce, 'auth_digest', payouts.auth_digest, 'succeeded', payouts.succeeded,
          'tx_hash', payouts.tx_hash, 'data', payouts.data, 'deposit_id', payouts.deposit_id::text, 'was_signed', ${wasSigned}))
        from payouts where payouts.id in (
          select i.id from payouts i where i.deposit_id = d.id and i.kind = 'authorize'
          union select i.id from payouts i where i.chain_id = s.chain_id and i.token = k.token and i.payer = ${from}
            and i.auth_nonce = ${nonce})) as relays
    from checkout_sessions s
      cross join lateral (select ${JSON.stringify(Object.fromEntries(tokens))}::jsonb ->> s.chain_id::text as token) k
      left join deposits d on d.resource_id = s.id
      left join payment_links l on l.id = s.link_id
    where s.id = ${id}`.execute(ctx.db)
  const [row] = rows
  if (!row) throw new ApiError("SESSION_NOT_FOUND")
  const { deposit_id: depositId, address, factory, older_factory, halted, arriving, open } = row
  if (row.capture !== "direct") return undefined
  if (depositId === null) throw new Error("a session has no receiving address")
  const relays = (row.relays ?? []).map(({ deposit_id: of, ...relay }) => {
    return { ...relay, deposit_id: of === null ? null : BigInt(of) }
  })
  return {
    session: row,
    deposit: { id: depositId, address, factory, older_factory },
    halted,
    isLinkUsedUp: row.is_link_used_up,
    arriving,
    open,
    ofSession: relays.filter(({ deposit_id: of, kind }) => of === depositId && kind === "authorize"),
    ofNonce: relays.filter(({ payer, auth_nonce }) => payer === from && auth_nonce === nonce),
    isWatchEnding: row.is_watch_ending,
  }
}
