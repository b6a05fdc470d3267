/**
 * Handles escrow calls that are on chain but not in the database, because an older backup was restored. The calldata
 * contains all terms of the payment, which identify the session. So the row of the call is written again, and the
 * session continues from the state on chain.
 */
import { randomUUID } from "node:crypto"
import { type Hex, hashTypedData } from "viem"
import { relayRow, writeRelays } from "../../ledger/relays/accept-relay.ts"
import {
  authorizationNonce,
  type EscrowCall,
  readEscrowCall,
  reclaimCall,
  typedPayment,
} from "../../platform/chain/escrow.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import { type NetworkInfo, networkOf } from "../../platform/chain/network-facts.ts"
import { payoutIdIn } from "../../platform/chain/release-call.ts"
import type { Receipt } from "../../platform/chain/transfers.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { newId } from "../../platform/ids.ts"
import { writeReserving } from "../../products/escrow/authorize-escrow.ts"
import { ofKind } from "../../products/escrow/fold-escrow.ts"
import { type Escrowed, lockEscrow, standingOfEscrow } from "../../products/escrow/load-escrow.ts"
import { insertCall } from "../../products/escrow/make-calls.ts"
import { refused } from "./find-wallet.ts"
import type { SignedTransaction } from "./read-transaction.ts"

/** A call to an escrow by its operator, and the transfers that it made. */
export interface LostCall {
  call: EscrowCall
  network: NetworkInfo
  /** The session with these terms; null if there is none here, because it was created after the backup. */
  sessionId: string | null
  /** The id of the payout at the end of the calldata. */
  id: string | undefined
  transaction: SignedTransaction
  receipt: Receipt
}

const SELECTOR_CHARS = 10
const WORD_CHARS = 64
const ID_CHARS = 32

/** The escrow call that a wallet made in a transaction as the escrow's operator; undefined if there is none. */
export async function lostCallOf(
  ctx: TxContext,
  wallet: Row<"wallets">,
  transaction: SignedTransaction,
  receipt: Receipt,
): Promise<LostCall | undefined> {
  const { to, data } = transaction
  // Calldata consists of a selector and whole words, so a remainder with the length of an id is the id of our payout.
  const isMarked = (data.length - SELECTOR_CHARS) % WORD_CHARS === ID_CHARS
  const call = readEscrowCall(isMarked ? (data.slice(0, -ID_CHARS) as Hex) : data)
  if (!call || to === null || wallet.lane !== "relay" || call.info.operator !== wallet.address) return undefined
  const network = networkOf(ctx.chain, wallet.chain_id)
  const session = await ctx.db
    .selectFrom("escrows")
    .select(["session_id", "max_amount"])
    .where("chain_id", "=", wallet.chain_id)
    .where("escrow", "=", to)
    .where("nonce", "=", authorizationNonce(call.info, wallet.chain_id, to))
    .executeTakeFirst()
  // The service always reserves the full signed amount.
  if (session && call.kind === "authorize" && call.amount !== session.max_amount) return undefined
  if (!session && !(await isEscrow(ctx, network, to))) return undefined
  const id = isMarked ? payoutIdIn(data) : undefined
  return { call, network, sessionId: session?.session_id ?? null, id, transaction, receipt }
}

async function isEscrow(ctx: TxContext, { chainId, escrow }: NetworkInfo, to: Address): Promise<boolean> {
  if (to === escrow?.address) return true
  const known = await ctx.db
    .selectFrom("escrows")
    .select("session_id")
    .where("chain_id", "=", chainId)
    .where("escrow", "=", to)
    .limit(1)
    .executeTakeFirst()
  return known !== undefined
}

/**
 * Writes the row of a lost call, queued and without a nonce, and returns it. If the call is a reservation, its
 * session then waits for it. Must be called under the escrow's lock. Throws `INVALID_OPERATION` if another
 * transaction must be adopted first, or a payout cancelled.
 */
export async function writeLostCall(ctx: TxContext, lost: LostCall): Promise<Row<"payouts">> {
  const { call, sessionId } = lost
  const escrowed = sessionId === null ? undefined : await lockEscrow(ctx, sessionId)
  if (!escrowed) throw new Error("a lost call without a session has no row")
  const { kind } = call
  const named = { ...lost, id: await freeIdOf(ctx, lost) }
  const id =
    kind === "authorize" ? await writeReservation(ctx, named, escrowed) : await writeCall(ctx, named, escrowed, kind)
  return await ctx.db.selectFrom("payouts").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
}

/** The id in the calldata, or a new one if a row that was cancelled after the restore has that id. */
async function freeIdOf(ctx: TxContext, { id }: LostCall): Promise<string> {
  if (id === undefined) return randomUUID()
  const taken = await ctx.db.selectFrom("payouts").select("id").where("id", "=", id).executeTakeFirst()
  return taken ? randomUUID() : id
}

type Named = LostCall & { id: string }

async function writeReservation(ctx: TxContext, { call, network, id, transaction }: Named, escrowed: Escrowed) {
  const { session, escrow } = escrowed
  const { info } = call
  const { calls } = await standingOfEscrow(ctx, escrowed)
  const other = ofKind(calls, "reserve").find(({ state }) => state !== "reverted" && state !== "cancelled")
  if (other)
    throw refused(
      `The transaction reserved the payment of the checkout ${session.id}, for which the payout ${other.id} is ${other.state}. ` +
        `The money is reserved: run \`sluice wallet cancel ${other.id}\`, then adopt the transaction again.`,
    )
  const typed = typedPayment(network, { address: escrow.escrow, collector: escrow.collector }, info)
  const authorization = {
    from: info.payer,
    to: escrow.collector,
    value: escrow.max_amount,
    validAfter: 0n,
    validBefore: BigInt(info.preApprovalExpiry),
    nonce: escrow.nonce,
  }
  const { data, gas } = transaction
  const facts = {
    kind: "reserve" as const,
    authorization,
    digest: hashTypedData(typed) as Hash,
    relayBy: session.expires_at,
    to: { merchantId: session.merchant_id },
  }
  const n = ofKind(calls, "reserve").length
  const row = { ...relayRow(ctx, network, { id, data, gas }, facts), escrow_id: session.id, to_address: escrow.escrow }
  const written = await writeRelays(ctx, [{ ...row, source_key: `escrow:${session.id}:reserve:${n}` }])
  if (written.size === 0) throw refused("Another payout has this authorization, or this id.")
  await writeReserving(ctx, escrow, info.payer)
  return id
}

async function writeCall(
  ctx: TxContext,
  { call, id, receipt, transaction: { data, gas } }: Named,
  { escrow, session }: Escrowed,
  kind: "capture" | "void" | "refund",
) {
  const { info } = call
  if (escrow.payer !== info.payer)
    throw refused(
      `The transaction is a ${kind} of the checkout ${escrow.session_id}. First adopt the transaction that reserved its payment.`,
    )
  // The calldata of a void does not contain the amount, which is in the transfer back to the payer. A void that
  // failed on chain returned nothing.
  const returned = receipt.transfers.find(({ token, to }) => token === escrow.token && to === info.payer)
  const amount = call.amount ?? returned?.value ?? escrow.max_amount
  await insertCall(ctx, { escrow, session }, { kind, amount, sent: { id, data, gas } })
  if (kind === "refund") {
    const { session_id, merchant_id } = escrow
    const now = ctx.now()
    await ctx.db
      .insertInto("refunds")
      .values({
        id: newId("re"),
        session_id,
        merchant_id,
        amount,
        reason: null,
        payout_id: id,
        created_at: now,
        updated_at: now,
      })
      .execute()
  }
  return id
}

/** Explains what happens to a call whose session is lost. */
export function lostCallMessage({ call, transaction: { to } }: LostCall): string {
  const { info, kind } = call
  const said = `The transaction is a ${kind} of an escrow, for a checkout that is not in this database because it was created after the backup`
  if (kind !== "authorize" || to === null) return said
  return (
    `${said}. Its payer ${checksummed(info.payer)} can withdraw the rest after ` +
    `${new Date(info.authorizationExpiry * 1_000).toISOString()}, with a transaction to ${checksummed(to)} with the data ${reclaimCall(info)}`
  )
}
