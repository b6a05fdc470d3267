/**
 * Compares transactions that are signed, or about to be signed, with the rows. A payout's calldata must match its
 * deposit, token, recipient, amount and id. An attempt's bytes must match that calldata. A deposit's address must match
 * its terms.
 */
import { sql } from "kysely"
import { type Hex, keccak256, parseTransaction } from "viem"
import { addressOfTerms, type Payee, payeesHash } from "../../platform/chain/deposit-terms.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import {
  approvalIn,
  giveBackCall,
  releaseData,
  returnNonce,
  termsOf,
  withoutId,
} from "../../platform/chain/release-call.ts"
import type { TxContext } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { outgoingKinds } from "../deposits/sum-deposits.ts"

/** A row that contradicts its signed transaction, its calldata or its address. */
interface Contradiction {
  table: string
  id: string
  /** A sentence, without a period. */
  words: string
}

type StoredTerms = Pick<Row<"deposits">, "factory" | "salt" | "owner" | "approver" | "payees_hash" | "open_after_s">

/** A payout with its deposit and all its signed attempts. */
export type SignedPayout = Row<"payouts"> & {
  deposit: Address
  terms: Omit<StoredTerms, "open_after_s"> & { open_after_s: string; payees: Payee[] }
  attempts: { id: string; raw: Hex; hash: Hash }[]
  /** How many returns its payment has had, including this one. */
  returns: number
}

/** The payees of a deposit `d`, in the order to which its address commits. */
const payeesOfDeposit = sql`(select coalesce(json_agg(json_build_object('address', r.address, 'percentE4', r.percent_e4)
  order by r.position), '[]'::json) from recipients r where r.set_id = d.recipient_set_id)`

/**
 * SQL: whether this version knows the terms of a deposit `d`. Deposits of factories from before approvers existed are
 * skipped.
 */
const isOurs = ({ depositFactory }: Pick<Network, "depositFactory">) =>
  sql<boolean>`(d.factory = ${depositFactory} or not d.older_factory)`

/** Reads payouts from deposits with their signed bytes, in the order of their ids. */
export async function signedPayouts(
  ctx: TxContext,
  network: Pick<Network, "chainId" | "depositFactory">,
  which: ReturnType<typeof sql>,
  limit: number,
): Promise<SignedPayout[]> {
  const { rows } = await sql<SignedPayout>`
    select i.*, d.address as deposit,
      json_build_object('factory', d.factory, 'salt', d.salt, 'owner', d.owner, 'approver', d.approver,
        'payees_hash', d.payees_hash, 'open_after_s', d.open_after_s::text,
        'payees', ${payeesOfDeposit}) as terms,
      (select coalesce(json_agg(json_build_object('id', a.id::text, 'raw', a.raw, 'hash', a.hash)), '[]'::json)
        from transaction_attempts a where a.payout_id = i.id and a.raw is not null) as attempts,
      (select count(*)::int from payouts r where i.kind = 'return' and r.payment_id = i.payment_id
        and r.kind = 'return') as returns
    from payouts i join deposits d on d.id = i.deposit_id
    where i.chain_id = ${network.chainId} and i.kind in ${outgoingKinds()} and ${isOurs(network)} and ${which} order by i.id limit ${limit}`.execute(
    ctx.db,
  )
  return rows
}

/**
 * Compares the calldata of payouts from deposits with their rows and their deposits' terms. Returns a function that
 * maps a payout's id to a sentence about the difference, or to undefined if there is none.
 */
export async function calldataFaults(
  ctx: TxContext,
  network: Pick<Network, "chainId" | "depositFactory">,
  ids: readonly string[],
): Promise<(id: string) => string | undefined> {
  const rows =
    ids.length === 0 ? [] : await signedPayouts(ctx, network, sql`i.id = any(${sqlArray("uuid", ids)})`, ids.length)
  const words = new Map(rows.map(row => [row.id, checkPayout({ ...row, attempts: [] })?.words]))
  // A payout that was not found can't be compared, whatever its row says now.
  return id => (words.has(id) ? words.get(id) : "its deposit is of a factory that is not served")
}

/** Returns the first contradiction between a payout's row and its calldata or signed transactions. */
export function checkPayout(payout: SignedPayout): Contradiction | undefined {
  const { id, terms, to_address: to, token, recipient, amount, nonce } = payout
  if (to !== terms.factory || !saysTheRow(payout))
    return {
      table: "payouts",
      id,
      words: `the row ${id} of payouts says ${amount} of ${token} from ${payout.deposit} to ${recipient}; its calldata says another thing`,
    }
  for (const { id: attemptId, raw, hash } of payout.attempts) {
    const wrong = wrongIn(payout, raw, hash, nonce)
    if (wrong)
      return {
        table: "transaction_attempts",
        id: attemptId,
        words: `the row ${attemptId} of transaction_attempts is not what it is for, the payout ${id}: ${wrong}`,
      }
  }
  return undefined
}

/** Whether the calldata is exactly what the row requires. */
function saysTheRow({ id, kind, terms, data, payment_id, returns, ...row }: SignedPayout): boolean {
  const deposit = { ...terms, open_after_s: BigInt(terms.open_after_s) }
  if (!kindOf({ kind }).hasApproval) return data === releaseData(id, deposit, terms.payees, row)
  const approval = approvalIn(data)
  if (!approval || payment_id === null) return false
  // No row stores how many returns had moved money when this one was made, so every possible nonce is compared.
  const nonces = Array.from({ length: returns }, (_, moved) => returnNonce(payment_id, moved))
  if (!nonces.includes(approval.nonce)) return false
  const { token, recipient: to, amount } = row
  return data === giveBackCall(id, deposit, { token, to, amount, ...approval }, approval.signature)
}

function wrongIn(payout: SignedPayout, raw: Hex, hash: Hash, nonce: bigint | null): string | undefined {
  let said: ReturnType<typeof parseTransaction>
  try {
    if (keccak256(raw) !== hash) return "its bytes have another hash"
    said = parseTransaction(raw)
  } catch {
    return "its bytes are no transaction"
  }
  if (said.chainId !== payout.chain_id || BigInt(said.nonce ?? 0) !== nonce)
    return "its bytes have another nonce or chain"
  const to = said.to?.toLowerCase()
  // An empty transfer from the wallet to itself moves no money. An operator can use up a nonce with such a transfer.
  if (to === payout.wallet && (said.value ?? 0n) === 0n && (said.data ?? "0x") === "0x") return undefined
  // A transaction adopted from the chain may end with the id of a payout that an old backup lacks.
  if (
    to !== payout.to_address ||
    withoutId(said.data ?? "0x") !== withoutId(payout.data) ||
    (said.value ?? 0n) !== payout.value
  )
    return "its bytes say another thing"
  return undefined
}

/** Returns a finding if a deposit's address does not follow from its terms, or does not commit to its payees. */
export function checkTerms(
  deposit: StoredTerms & { id: bigint; address: Address },
  payees: readonly Payee[],
): Contradiction | undefined {
  const { factory, salt } = deposit
  const isSo = addressOfTerms(factory, salt, termsOf(deposit)) === deposit.address
  if (isSo && payeesHash(payees) === deposit.payees_hash) return undefined
  const id = `${deposit.id}`
  return {
    table: "deposits",
    id,
    words: `the row ${id} of deposits has other terms than its address ${deposit.address}`,
  }
}
