/** What must hold of agents' payments after any chaos, asked of the clients, the chain and the database themselves. */
import { sql } from "kysely"
import { parseAbiItem } from "viem"
import type { Address } from "../../src/platform/chain/hex.ts"
import type { PayoutRig } from "../payouts.ts"
import type { relaysOn } from "../relays.ts"
import type { Buyer } from "./x402.ts"

const used = parseAbiItem("event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)")
const moved = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)")

/**
 * Everything that does not hold, in words. `cut`: how often a process was killed while it served a settlement. An answer that
 * was sent and is not recorded may be sent once more for each, but not that of a call that does more than read: it is recorded before
 * its answer begins.
 */
export async function unsettled(
  { rig, on }: { rig: PayoutRig; on: ReturnType<typeof relaysOn> },
  buyers: readonly Buyer[],
  { seller, cut }: { seller: Address; cut: ReadonlyMap<string, number> },
): Promise<string[]> {
  const { client } = rig.anvil
  const { db } = rig.service.ctx
  const found: string[] = []
  const say = (wrong: boolean, words: string) => void (wrong && found.push(words))
  for (const { name, answers, token, refusals } of buyers) {
    say(answers === 0 && token === undefined, `${name} paid and has nothing: ${refusals.join(", ")}`)
    say(answers === 0 && token !== undefined, `${name} has a token and was not answered: ${refusals.join(", ")}`)
    say(
      refusals.some(each => each.startsWith("402")),
      `${name} is to pay again: ${refusals.join(", ")}`,
    )
  }
  const settlements = await db.selectFrom("settlements").selectAll().execute()
  const idOf = ({ signed }: Buyer) => `${settlements.find(({ nonce }) => nonce === signed.authorization.nonce)?.id}`
  for (const buyer of buyers) {
    const mayRepeat = buyer.kind === "POST" ? 0 : (cut.get(idOf(buyer)) ?? 0)
    say(buyer.answers > 1 + mayRepeat, `${buyer.name} was served ${buyer.answers} times`)
  }

  const range = { address: rig.token, fromBlock: 0n, toBlock: "latest", strict: true } as const
  const uses = await client.getLogs({ ...range, event: used })
  const transfers = await client.getLogs({ ...range, event: moved })
  const relays = await on.relays()
  for (const { name, signed, isOvertaken } of buyers) {
    const { from, to, value, nonce } = signed.authorization
    const [use, ...others] = uses.filter(({ args }) => args.nonce === nonce)
    say(use === undefined || others.length > 0, `${name}: the authorization was not used once`)
    const paid = transfers.filter(({ args }) => args.from.toLowerCase() === from && args.to.toLowerCase() === to)
    say(paid.length !== 1 || paid[0]?.args.value !== value, `${name}: not one transfer of what was signed`)
    // Where a reorg removed what somebody else had carried out, a payment has another relay than the cancelled one.
    const own = relays.filter(({ auth_nonce: each }) => each === nonce)
    const final = own.filter(({ state }) => state === "final")
    const isOurs = final.length === 1 && final[0]?.tx_hash === use?.transactionHash
    const isOthers = isOvertaken && own.length > 0 && final.length === 0
    say(!isOurs && !isOthers, `${name}: its relays are ${own.map(({ state }) => state)}`)
  }

  await client.mine({ blocks: 4 })
  await on.look()
  const payments = await db.selectFrom("payments").selectAll().execute()
  const ours = buyers.filter(({ kind }) => kind !== "facilitator")
  say(payments.length !== ours.length, `${payments.length} payments for ${ours.length} buyers`)
  for (const { id, status, agent } of payments) say(status !== "granted" || !agent, `the payment ${id} is ${status}`)
  const books = await sql<{ address: Address; inflow: bigint }>`
    select d.address, coalesce(sum(b.inflow), 0)::numeric(78,0) as inflow from deposits d
      left join deposit_books b on b.deposit_id = d.id group by d.address`.execute(db)
  for (const { address, inflow } of books.rows)
    say((await rig.balanceOf(address)) !== inflow, `the books of ${address} are not the chain's`)
  const sold = buyers
    .filter(({ kind }) => kind === "facilitator")
    .reduce((sum, each) => sum + each.signed.authorization.value, 0n)
  say((await rig.balanceOf(seller)) !== sold, "another server got another amount")
  const wallet = await db.selectFrom("wallets").selectAll().where("lane", "=", "relay").executeTakeFirstOrThrow()
  say(wallet.status !== "active", `the wallet is halted: ${wallet.halted_reason}`)
  const count = BigInt(await client.getTransactionCount({ address: rig.relayer.address }))
  say(wallet.next_nonce !== count, `next_nonce is ${wallet.next_nonce}, the chain has ${count}`)
  return found
}
