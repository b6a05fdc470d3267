/**
 * Determines whether an approver agreed to a deposit's outflow. Anyone may submit the signature of a merchant's wallet,
 * so a merchant can send its own money back without the service. The factory emits an event about such an outflow in
 * the same transaction.
 */
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { QuorumView } from "../../platform/chain/quorum.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"

/**
 * `unknown` means that no quorum has read the same report of the factory, and no quorum has read the receipt without a
 * report.
 */
export type Agreement = { said: "yes"; nonce: Hash } | { said: "no" | "unknown" }

type Outgoing = { txHash: Hash; blockHash: Hash; token: Address; from: Address; to: Address; value: bigint }

/** The nonces of the factory's reports, keyed by what each report states, in the order of one receipt's logs. */
type Reading = Map<string, Hash[]>

/**
 * Returns a function that says for each transfer whether the deposit's approver agreed to the transfer, and with which
 * nonce. The function uses receipts that the quorum has learned. Each report explains one transfer, and the transfers
 * in `explained` have already used up reports. If the factory itself is the approver, the factory's operator sent the
 * transfer, and no other party agreed to it.
 */
export function agreements(network: Network, quorum: QuorumView, explained: readonly Outgoing[]) {
  const needed = quorumOf(network)
  const counted = new Map<string, number>()
  const reports = new Map<string, Reading[]>()
  for (const transfer of explained) count(transfer)
  return ({ factory, approver }: { factory: Address; approver: Address }, transfer: Outgoing): Agreement => {
    if (approver === factory) return { said: "no" }
    const readings = readingsOf(transfer)
    const earlier = count(transfer)
    const nonces = readings.flatMap(reading => reading.get(statement(factory, transfer))?.[earlier] ?? [])
    const [most] = [...Map.groupBy(nonces, nonce => nonce).values()].sort((a, b) => b.length - a.length)
    const [nonce] = most ?? []
    if (nonce !== undefined && most && most.length >= needed) return { said: "yes", nonce }
    return { said: readings.length - nonces.length >= needed ? "no" : "unknown" }
  }

  /** Counts a transfer, and returns how many equal transfers in its transaction were counted before. */
  function count(transfer: Outgoing): number {
    const key = `${transfer.txHash} ${statement("", transfer)}`
    const before = counted.get(key) ?? 0
    counted.set(key, before + 1)
    return before
  }

  /** Returns the reports in each voter's receipt for the transaction, if the receipt is in this block. */
  function readingsOf({ txHash, blockHash }: Outgoing): Reading[] {
    const key = `${txHash} ${blockHash}`
    const known = reports.get(key)
    if (known) return known
    const readings = quorum
      .receiptsOf(txHash)
      .filter(receipt => receipt?.blockHash === blockHash)
      .map(receipt => {
        const reading: Reading = new Map()
        for (const { factory, deposit, token, to, amount, nonce } of receipt?.givenBack ?? []) {
          const said = statement(factory, { token, from: deposit, to, value: amount })
          const nonces = reading.get(said)
          if (nonces) nonces.push(nonce)
          else reading.set(said, [nonce])
        }
        return reading
      })
    reports.set(key, readings)
    return readings
  }
}

const statement = (factory: string, { token, from, to, value }: Omit<Outgoing, "txHash" | "blockHash">): string =>
  `${factory} ${from} ${token} ${to} ${value}`
