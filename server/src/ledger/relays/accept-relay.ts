/**
 * Checks whether the relay wallet can submit a signed authorization, and writes the relay's row. All checks come before
 * the first write, because each relay costs the service gas.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import type { Hex } from "viem"
import { type Authorization, relayCall } from "../../platform/chain/authorizations.ts"
import { readSignature, type SignedBy } from "../../platform/chain/check-signatures.ts"
import { type Address, type Hash, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { marked } from "../../platform/chain/release-call.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { gatherBy } from "../../platform/db/gather.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"
import { continueTrace } from "../../platform/tracing/trace.ts"
import { relaysSpent } from "../txmanager/check-gas-budget.ts"
import { areContractRelaysSpent, isTotalSpent } from "../txmanager/check-total-budget.ts"
import { NO_BUDGET, NO_CONTRACT_BUDGET, RELAY_GAS, tryRelay } from "./try-relay.ts"

/** The reasons for not relaying an authorization. */
type RelayRefusal =
  /** The network has no active relay wallet, the wallet is halted, or its signer does not sign. */
  | "no_wallet"
  /** The gas budget of the merchant, all merchants, or contract wallets is spent. */
  | "budget"
  | "listed"
  /** No sanctions source responds. */
  | "unscreened"
  | "signature"
  | "used"
  /** The receiving address holds money that the scan has not found yet. */
  | "unseen"
  /** The payer's balance is too low. */
  | "short"
  /** The token would refuse the transfer. */
  | "fails"

export interface RefusedRelay {
  refusal: RelayRefusal
  /** A sentence. For `signature`, this is a clause that follows "the signature". */
  words: string
}

/** A relay that passed the checks and may be written: its id, calldata and gas limit. */
export interface CheckedRelay {
  id: string
  data: Hex
  gas: bigint
  by: SignedBy
}

/** The authorization to relay, and its merchant. */
interface RelayRequest {
  merchantId: string
  /** The purpose of screening the payer, as the log shows it. */
  purpose: string
  authorization: Authorization
  digest: Hash
  signature: Hex
  /** The receiving address. Money that just arrived there would pay for the same thing. */
  deposit?: Pick<Row<"deposits">, "id" | "address">
  /** The call that submits the authorization, if it is not the token's own function. */
  call?: RelayCall
}

/** A call that submits an authorization, and its highest gas limit by kind of signature. */
interface RelayCall {
  to: Address
  /** Builds the calldata from the signature in the form that contracts accept. */
  data: (signature: Hex) => Hex
  gas: Record<SignedBy, bigint>
}

/**
 * Runs every check that does not depend on what is being bought. Writes nothing. Throws `CHAIN_UNAVAILABLE` if too few
 * endpoints agree.
 */
export async function checkRelay(
  ctx: Context,
  network: Network,
  { merchantId, purpose, authorization, digest, signature: given, deposit, call }: RelayRequest,
): Promise<CheckedRelay | RefusedRelay> {
  const { from, nonce, value: amount } = authorization
  const limits = call?.gas ?? RELAY_GAS
  const wallet = await relayWallet(ctx, network)
  if (!wallet) return refused("no_wallet", "")
  const { chainId: chain_id } = network
  // A call to another contract is a reservation, and the budget counts the gas of a reservation twice.
  if (await relaysSpent(ctx, merchantId, { chain_id, address: wallet }, limits.key, call ? "reserve" : "authorize"))
    return refused("budget", NO_BUDGET)
  // The signature is read before the screening, so that a forged one does not send a stranger's address to a sanctions
  // source.
  const signed = await readSignature(ctx, network, { from, digest, signature: given }, "transaction")
  if ("fault" in signed) return refused("signature", signed.fault)
  const { by, signature } = signed
  const screening = (await screen(ctx, [from], purpose)).get(from)
  if (screening === "listed") return refused("listed", "")
  if (screening === "unknown") return refused("unscreened", "")
  const id = randomUUID()
  const data = marked(call?.data(signature) ?? relayCall(authorization, signature, by), id)
  const to = call?.to ?? network.token.address
  const trial = await tryRelay(ctx, network, { wallet, deposit, payer: from, nonce, amount, to, data, by, limits })
  if (trial === "used" || trial === "unseen") return refused(trial, "")
  if ("words" in trial) return refused(trial.isShort ? "short" : "fails", trial.words)
  const { gas, most } = trial
  if (await isTotalSpent(ctx, most, call ? "reserve" : "authorize")) return refused("budget", NO_BUDGET)
  if (by === "contract" && (await areContractRelaysSpent(ctx, network.chainId, most)))
    return refused("budget", NO_CONTRACT_BUDGET)
  return { id, data, gas, by }
}

const refused = (refusal: RelayRefusal, words: string): RefusedRelay => ({ refusal, words })

/**
 * Returns the relay wallet's address. Undefined if the network never had an active relay wallet, if the wallet is
 * halted, or if its signer does not sign.
 */
const relayWallet = async (ctx: Context, { chainId }: NetworkInfo): Promise<Address | undefined> =>
  await activeWallets(ctx, chainId)

const activeWallets = gatherBy(async (ctx: Context, chainIds: readonly number[]): Promise<Map<number, Address>> => {
  // If a relay were accepted while the signer does not sign, it would wait until its deadline passes.
  const { rows: wallets } = await sql<Pick<Row<"wallets">, "chain_id" | "address">>`
    select /* named: active_relayers */ chain_id, address from wallets where chain_id = any(${sqlArray("bigint", chainIds.map(BigInt))})
      and address = ${ctx.settings.relayWallet ?? ZERO_ADDRESS} and status = 'active' and not 'signer' = any(alarms)`.execute(
    ctx.db,
  )
  return new Map(wallets.map(({ chain_id, address }) => [chain_id, address]))
})

/** The fields of a relay's row, except those of its call. */
interface NewRelay {
  kind: "authorize" | "settle" | "reserve"
  authorization: Authorization
  digest: Hash
  /** The deadline. A relay that is unsigned by then is cancelled. */
  relayBy: Date
  /** The deposit that the relay pays or, if there is none, the merchant whose budget it uses. */
  to: { depositId: bigint } | { merchantId: string }
  /** The trace of what the relay pays for. Without a trace, the request starts the trace. */
  traceparent?: string | null
}

/** Writes the relay. Returns false if a relay with the same nonce already exists. Call this inside a transaction. */
export async function writeRelay(
  ctx: TxContext,
  network: NetworkInfo,
  relay: Pick<CheckedRelay, "id" | "data" | "gas">,
  facts: NewRelay,
): Promise<boolean> {
  return (await writeRelays(ctx, [relayRow(ctx, network, relay, facts)])).size > 0
}

/** The row of a relay to write. Without a `source_key`, the row gets the key of its authorization. */
export type RelayRow = Pick<
  Row<"payouts">,
  | ("id" | "chain_id" | "kind" | "deposit_id" | "escrow_id" | "token" | "recipient" | "amount" | "to_address" | "data")
  | ("gas" | "payer" | "auth_nonce" | "auth_digest" | "relay_by" | "traceparent")
> & { source_key: string | null; merchant_id: string | null }

const COLUMNS = `id uuid, chain_id integer, kind text, deposit_id bigint, escrow_id text, merchant_id text, token text, recipient text,
  amount numeric, to_address text, data text, gas bigint, payer text, auth_nonce text, auth_digest text, relay_by timestamptz,
  traceparent text`
const NAMES = COLUMNS.replace(/ \w+(,|$)/g, "$1")

/**
 * Writes relays in this order, and returns the ids that were written. A relay is skipped if one with the same nonce
 * already exists. Call this inside a transaction. The same statement counts the earlier relays for each nonce.
 */
export async function writeRelays(ctx: TxContext, relays: readonly RelayRow[]): Promise<Set<string>> {
  const now = ctx.now()
  const rows = relays.map((relay, n) => ({
    ...relay,
    n,
    deposit_id: relay.deposit_id === null ? null : `${relay.deposit_id}`,
    amount: `${relay.amount}`,
    gas: relay.gas === null ? null : `${relay.gas}`,
  }))
  const made = await sql<{ id: string }>`
    /* named: write_relays */ insert into payouts (${sql.raw(NAMES)}, source_key, reserved, state, run_at, created_at, updated_at)
    select ${sql.raw(NAMES)}, coalesce(source_key, kind || ':' || chain_id || ':' || token || ':' || payer || ':' || auth_nonce || ':' ||
        (select count(*) from payouts i where i.chain_id = g.chain_id and i.token = g.token and i.payer = g.payer
          and i.auth_nonce = g.auth_nonce)),
      false, 'queued', ${dueNow(now)}, ${now}::timestamptz, ${now}::timestamptz
    from (${rowsParameter(rows, `n integer, source_key text, ${COLUMNS}`)}) g order by n
    on conflict do nothing returning id`.execute(ctx.db)
  return new Set(made.rows.map(({ id }) => id))
}

/** Builds the row of a new relay. */
export function relayRow(
  ctx: TxContext,
  { chainId, token }: NetworkInfo,
  { id, data, gas }: Pick<CheckedRelay, "id" | "data" | "gas">,
  { kind, authorization: { from, to: recipient, value, nonce }, digest, relayBy, to, traceparent = null }: NewRelay,
): RelayRow {
  return {
    id,
    chain_id: chainId,
    kind,
    source_key: null,
    escrow_id: null,
    deposit_id: "depositId" in to ? to.depositId : null,
    merchant_id: "merchantId" in to ? to.merchantId : null,
    token: token.address,
    recipient,
    amount: value,
    to_address: token.address,
    data,
    gas,
    payer: from,
    auth_nonce: nonce,
    auth_digest: digest,
    relay_by: relayBy,
    traceparent: continueTrace(ctx, traceparent),
  }
}

/** Returns all relays that were ever made for a payer's nonce. */
export const relaysOf = (
  ctx: TxContext,
  { chainId, token }: Pick<NetworkInfo, "chainId" | "token">,
  payer: Address,
  nonce: Hash,
): Promise<Row<"payouts">[]> =>
  ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("chain_id", "=", chainId)
    .where("token", "=", token.address)
    .where("payer", "=", payer)
    .where("auth_nonce", "=", nonce)
    .execute()
