/**
 * Whether an approver agreed to what left a deposit: anyone may submit the signature of a merchant's wallet, so a merchant can
 * send its own money back without the service. The factory says so in the same transaction.
 */
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { QuorumView } from "../chain/quorum.ts"
import { quorumOf } from "../chain/wallet-state.ts"

/** `unknown` where neither a quorum has read the factory's report nor a quorum has read the receipt without it. */
export type Agreement = "yes" | "no" | "unknown"

type Outgoing = { txHash: Hash; blockHash: Hash; token: Address; from: Address; to: Address; value: bigint }

/**
 * Answers for one transfer after another whether the deposit's approver agreed to it, by receipts that the quorum has learned.
 * Each report counts for one transfer; `explained` are transfers that earlier reports were counted for. Where the factory itself
 * is the approver, its operator sent the transfer, and no other party agreed to it.
 */
export function agreements(network: Network, quorum: QuorumView, explained: readonly Outgoing[]) {
  const needed = quorumOf(network)
  const counted = new Map<string, number>()
  const reports = new Map<string, Map<string, number>[]>()
  for (const transfer of explained) count(transfer)
  return ({ factory, approver }: { factory: Address; approver: Address }, transfer: Outgoing): Agreement => {
    if (approver === factory) return "no"
    const readings = readingsOf(transfer)
    const earlier = count(transfer)
    const yes = readings.filter(reading => (reading.get(statement(factory, transfer)) ?? 0) > earlier).length
    if (yes >= needed) return "yes"
    return readings.length - yes >= needed ? "no" : "unknown"
  }

  /** How many transfers like this one were counted before it in its transaction. */
  function count(transfer: Outgoing): number {
    const key = `${transfer.txHash} ${statement("", transfer)}`
    const before = counted.get(key) ?? 0
    counted.set(key, before + 1)
    return before
  }

  /** How often each voter's receipt in this block has each report. */
  function readingsOf({ txHash, blockHash }: Outgoing): Map<string, number>[] {
    const key = `${txHash} ${blockHash}`
    const known = reports.get(key)
    if (known) return known
    const readings = quorum
      .receiptsOf(txHash)
      .filter(receipt => receipt?.blockHash === blockHash)
      .map(receipt => {
        const reading = new Map<string, number>()
        for (const { factory, deposit, token, to, amount } of receipt?.givenBack ?? []) {
          const said = statement(factory, { token, from: deposit, to, value: amount })
          reading.set(said, (reading.get(said) ?? 0) + 1)
        }
        return reading
      })
    reports.set(key, readings)
    return readings
  }
}

const statement = (factory: string, { token, from, to, value }: Omit<Outgoing, "txHash" | "blockHash">): string =>
  `${factory} ${from} ${token} ${to} ${value}`
