/**
 * Compares what left the deposits, by the logs of finalized blocks, with what was to leave them. What nobody meant, what
 * was meant once and left twice, and what is called final and never left: each halts the wallet.
 */
import { sql } from "kysely"
import { askAny, shrinkLogRange } from "../chain/endpoints.ts"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { RpcError } from "../chain/rpc.ts"
import { blockCall, outgoingCalls, readBlock, readTransfers, type Transfer } from "../chain/transfers.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { payoutAlarms } from "../metrics.ts"
import type { Panel } from "../payments/look.ts"
import { haltWallet, movedIt } from "./confirm-intents.ts"

const HOUR_MS = 3_600_000
/** After a look that did not get on: a node must not be asked the same in every turn. */
const RETRY_MS = 60_000
const WINDOWS_A_CHECK = 50

/** Looks when its hour has come; goes on from the last block that was compared. */
export async function checkBooks(ctx: Context, network: Network, wallet: Row<"wallets">, panel: Panel): Promise<void> {
  const now = ctx.now()
  if (wallet.check_at && wallet.check_at > now) return
  let from = wallet.checked_number === null ? panel.finalized : wallet.checked_number + 1n
  let nextMs: number | undefined
  for (let windows = 0; from <= panel.finalized && windows < WINDOWS_A_CHECK; windows++) {
    const range = network.endpoints.reduce((low, { logRange }) => (logRange < low ? logRange : low), 10_000n)
    const end = from + range - 1n
    const to = end < panel.finalized ? end : panel.finalized
    const left = await outgoing(ctx, network, from, to)
    if (!left) {
      nextMs = retry("the books can't be compared: no node tells the logs")
      break
    }
    const fault = await faultIn(ctx, network, left, from, to)
    if (fault) {
      // Logs are one node's word; what halts a wallet all must say.
      if (!(await isProven(panel, fault))) {
        nextMs = retry(fault.words)
        break
      }
      return await haltWallet(ctx, network, wallet, "books", fault.words)
    }
    await ctx.db.updateTable("wallets").set({ checked_number: to }).where("id", "=", wallet.id).execute()
    from = to + 1n
  }
  nextMs ??= from > panel.finalized ? HOUR_MS : 0
  await ctx.db
    .updateTable("wallets")
    .set({ check_at: new Date(now.getTime() + nextMs) })
    .where("id", "=", wallet.id)
    .execute()

  function retry(words: string): number {
    ctx.log.error({ network: network.name, from: `${from}` }, `${words} (not proven; looked at again)`)
    payoutAlarms.inc({ network: network.name, reason: "books" })
    return RETRY_MS
  }
}

/** The transfers out of all deposits in these blocks; undefined where they could not be asked, or the node lacks them. */
async function outgoing(ctx: Context, network: Network, from: bigint, to: bigint): Promise<Transfer[] | undefined> {
  const deposits = await ctx.db
    .selectFrom("deposits")
    .select("address")
    .where("chain_id", "=", network.chainId)
    .execute()
  const addresses = deposits.map(row => row.address)
  const calls = outgoingCalls(network.token.address, addresses, from, to)
  try {
    const results = await askAny(network.endpoints, [...calls, blockCall(to)], ctx.signal)
    const block = results.at(-1)
    if (!block?.ok || readBlock(block.value)?.number !== to) return undefined
    return results.slice(0, -1).flatMap(result => {
      if (!result.ok) throw new RpcError(result.error)
      return readTransfers(result.value)
    })
  } catch (error) {
    if (!(error instanceof RpcError) || ctx.signal.aborted) throw error
    for (const endpoint of network.endpoints) shrinkLogRange(endpoint)
    return undefined
  }
}

interface Known {
  id: string
  hash: Hash
  /** By which attempt it is final; before that, another one may yet be found. */
  tx_hash: Hash | null
  from: Address
  recipient: Address
  amount: bigint
}

/** What does not fit: a transfer that is there, or (`missing`) one that is not. */
interface Fault {
  words: string
  hash: Hash
  missing?: { token: Address; recipient: Address; amount: bigint }
}

/** Whether the receipt bears the fault out: it stands; or, for what is missing, it is nowhere or without the transfer. */
async function isProven(panel: Panel, { hash, missing }: Fault): Promise<boolean> {
  await panel.learn([], [hash])
  const told = panel.anyReceipt(hash)
  if (told) await panel.learn([told.blockNumber], [])
  const receipt = panel.receiptOf(hash)
  if (receipt === undefined) return false
  return missing ? receipt === null || !movedIt(receipt, missing) : receipt !== null
}

/** The first thing wrong with the transfers out of deposits in these blocks; undefined when all is as it was meant. */
async function faultIn(
  ctx: Context,
  network: Network,
  left: readonly Transfer[],
  from: bigint,
  to: bigint,
): Promise<Fault | undefined> {
  const finals = await ctx.db
    .selectFrom("intents")
    .select(["id", "tx_hash", "token", "recipient", "amount"])
    .where("chain_id", "=", network.chainId)
    .where("kind", "in", ["share", "sweep", "return"])
    // Only the settlement token is believed: any other could halt the wallet by logs that it makes up or leaves out.
    .where("token", "=", network.token.address)
    .where("state", "=", "final")
    .where("block_number", ">=", from)
    .where("block_number", "<=", to)
    .execute()
  const known = left.length === 0 ? [] : await knownAttempts(ctx, left)
  const paid = new Set<string>()
  for (const transfer of left) {
    const fault = (words: string): Fault => ({ words, hash: transfer.txHash })
    const intent = known.find(({ hash }) => hash === transfer.txHash)
    if (!intent) {
      if (await isRecovery(ctx, network, transfer)) continue
      return fault(`the transfer ${transfer.txHash} left a deposit, and no payout meant it`)
    }
    if (transfer.from !== intent.from || transfer.to !== intent.recipient || transfer.value !== intent.amount)
      return fault(`the transfer ${transfer.txHash} is not what the payout ${intent.id} meant`)
    if (paid.has(intent.id) || (intent.tx_hash !== null && intent.tx_hash !== transfer.txHash))
      return fault(`the payout ${intent.id} was paid twice`)
    paid.add(intent.id)
  }
  const missing = finals.find(({ id }) => !paid.has(id))
  if (!missing?.tx_hash) return undefined
  const words = `the payout ${missing.id} is final by ${missing.tx_hash}, and its transfer is not in the chain`
  return { words, hash: missing.tx_hash, missing }
}

async function knownAttempts(ctx: Context, left: readonly Transfer[]): Promise<Known[]> {
  const { rows } = await sql<Known>`
    select i.id, a.hash, case when i.state = 'final' then i.tx_hash end as tx_hash, d.address as from, i.recipient, i.amount
    from attempts a join intents i on i.id = a.intent_id join deposits d on d.id = i.deposit_id
    where a.hash = any(${sql.val(left.map(transfer => transfer.txHash))}::text[])`.execute(ctx.db)
  return rows
}

/** Anyone may send a deposit's money to its owner once it is open. */
async function isRecovery(ctx: Context, network: Network, transfer: Transfer): Promise<boolean> {
  const deposit = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("chain_id", "=", network.chainId)
    .where("address", "=", transfer.from)
    .executeTakeFirst()
  const open = BigInt(Math.floor(ctx.now().getTime() / 1_000))
  const recovered = deposit !== undefined && transfer.to === deposit.owner && deposit.open_after_s < open
  if (recovered) ctx.log.warn({ txHash: transfer.txHash }, "a deposit was recovered to its owner")
  return recovered
}
