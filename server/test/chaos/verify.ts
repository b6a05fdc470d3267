/** What must hold after any chaos, asked of the chain and the database themselves, past every proxy. */
import { sql } from "kysely"
import { type Hex, keccak256, parseAbiItem, parseTransaction } from "viem"
import type { Address } from "../../src/platform/chain/hex.ts"
import { payoutIdIn } from "../../src/platform/chain/release-call.ts"
import type { Db } from "../../src/platform/db/open.ts"
import type { Row } from "../../src/platform/db/schema.ts"
import type { Anvil } from "../anvil.ts"

const transferEvent = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)")

export interface Expected {
  token: Address
  wallet: Address
  firstNonce: bigint
  deposits: Address[]
  /** What each recipient is to get; nobody is two shares' recipient. */
  owed: Map<Address, bigint>
  /** Hashes of all that was ever handed to a node. */
  broadcast: ReadonlySet<Hex>
}

/** What does not hold of signed transactions (I1 to I3): only what is committed is sent, and a nonce is one payout's alone. */
export function attemptFaults(all: readonly Row<"transaction_attempts">[], broadcast: ReadonlySet<Hex>): string[] {
  // One that was replaced before it was signed was never anywhere.
  const attempts = all.flatMap(({ raw, hash, ...rest }) => (raw && hash ? [{ ...rest, raw, hash }] : []))
  const found: string[] = []
  const say = (wrong: boolean, words: string) => void (wrong && found.push(words))
  const hashes = new Set<string>(attempts.map(attempt => attempt.hash))
  say(
    [...broadcast].some(hash => !hashes.has(hash)),
    "I1: bytes were broadcast that are no committed attempt",
  )
  say(
    attempts.some(({ raw, hash }) => keccak256(raw) !== hash),
    "I1: an attempt has another hash than its bytes",
  )

  const payload = (raw: Hex) => {
    const { to, value, data, gas, nonce } = parseTransaction(raw)
    return { text: `${to} ${value ?? 0n} ${data} ${gas}`, nonce: BigInt(nonce ?? 0), id: payoutIdIn(data ?? "0x") }
  }
  for (const [nonce, group] of Map.groupBy(attempts, attempt => attempt.nonce)) {
    const payloads = group.map(attempt => payload(attempt.raw))
    say(new Set(payloads.map(each => each.text)).size > 1, `I2: the attempts of nonce ${nonce} differ`)
    say(
      payloads.some(each => each.nonce !== nonce),
      `I2: an attempt of nonce ${nonce} was signed with another`,
    )
    say(
      payloads.some((each, i) => each.id !== group[i]?.payout_id),
      `I2: an attempt of nonce ${nonce} names another payout`,
    )
  }
  for (const [id, group] of Map.groupBy(attempts, attempt => attempt.payout_id))
    say(new Set(group.map(attempt => attempt.nonce)).size > 1, `I3: the payout ${id} had several nonces`)
  return found
}

/** Everything that does not hold, in words; empty when all does. */
export async function violations(db: Db, { client }: Anvil, expected: Expected): Promise<string[]> {
  const { token, wallet, firstNonce, deposits, owed, broadcast } = expected
  const found: string[] = []
  const say = (wrong: boolean, words: string) => {
    if (wrong) found.push(words)
  }
  const payouts = await db.selectFrom("payouts").selectAll().execute()
  const attempts = await db.selectFrom("transaction_attempts").selectAll().execute()
  const row = await db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
  const finalized = (await client.getBlock({ blockTag: "finalized" })).number
  const logs = (
    await client.getLogs({
      address: token,
      event: transferEvent,
      args: { from: deposits },
      fromBlock: 0n,
      toBlock: "latest",
    })
  ).filter(log => (log.args.value ?? 0n) > 0n)

  const paid = Map.groupBy(logs, log => log.args.to?.toLowerCase() as Address)
  for (const [recipient, amount] of owed) {
    const got = paid.get(recipient) ?? []
    say(got.length > 1, `${recipient} was paid twice`)
    say(got.length === 0, `${recipient}: a payment is missing`)
    say(got.length === 1 && got[0]?.args.value !== amount, `${recipient} was paid another amount`)
  }
  say(
    [...paid.keys()].some(recipient => !owed.has(recipient)),
    "a stranger was paid",
  )

  const count = BigInt(await client.getTransactionCount({ address: wallet }))
  say(row.status !== "active", `the wallet is halted: ${row.halted_reason}`)
  say(row.next_nonce !== count, `next_nonce is ${row.next_nonce}, the chain has ${count}: jammed`)

  found.push(...attemptFaults(attempts, broadcast))

  const nonces = new Set(attempts.map(attempt => attempt.nonce))
  for (let nonce = firstNonce; nonce < row.next_nonce; nonce++)
    say(!nonces.has(nonce), `I4: the nonce ${nonce} is a gap`)

  for (const payout of payouts) {
    say(payout.state !== "final", `I5: ${payout.id} is ${payout.state}, not final`)
    if (payout.state !== "final" || payout.tx_hash === null) continue
    const receipt = await client.getTransactionReceipt({ hash: payout.tx_hash }).catch(() => undefined)
    say(
      receipt?.status !== "success" || receipt.blockHash !== payout.block_hash || receipt.blockNumber > finalized,
      `I5: ${payout.id} is final, and the chain does not say so`,
    )
  }

  const finals = payouts.filter(({ state }) => state === "final")
  const known = new Map(finals.map(payout => [payout.tx_hash as string, payout]))
  for (const log of logs.filter(({ blockNumber }) => blockNumber <= finalized)) {
    const payout = known.get(log.transactionHash)
    say(!payout || payout.amount !== log.args.value, `I6: ${log.transactionHash} is no final payout's transfer`)
    known.delete(log.transactionHash)
  }
  say(known.size > 0, "I6: a final payout has no transfer")

  const books = await sql<{ bad: number }>`select count(*)::int as bad from deposit_books b where
    b.inflow <> (select coalesce(sum(t.value), 0) from transfers t
      where t.deposit_id = b.deposit_id and t.token = b.token and t.state in ('confirmed', 'final'))
    or b.committed <> (select coalesce(sum(i.amount), 0) from payouts i where i.deposit_id = b.deposit_id
      and i.token = b.token and i.reserved and i.state not in ('cancelled', 'reverted'))
    or b.committed > b.inflow`.execute(db)
  say(books.rows[0]?.bad !== 0, "I7: a book does not add up")
  return found
}
