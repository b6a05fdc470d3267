/** False answers of an endpoint about the wallet, its payouts and their chain: for a proxy in front of anvil. */
import { type Hex, pad, toHex } from "viem"
import type { Hash } from "../src/platform/chain/hex.ts"
import { TRANSFER_TOPIC } from "../src/platform/chain/transfers.ts"
import { DROPPED, failed, newHash } from "./node.ts"
import type { PayoutRig } from "./payouts.ts"
import type { RpcProxy } from "./proxy.ts"

type Json = Record<string, unknown>
/** The answer instead of `truth`; undefined where the lie is about something else. */
type Lie = (method: string, params: unknown[], truth: unknown, rig: PayoutRig) => unknown

const counts =
  (change: (count: bigint) => bigint): Lie =>
  (method, _params, truth) =>
    method === "eth_getTransactionCount" ? toHex(change(BigInt(String(truth)))) : undefined
const receipts =
  (change: (receipt: Json) => unknown): Lie =>
  (method, _params, truth) =>
    method === "eth_getTransactionReceipt" && truth !== null ? change(truth as Json) : undefined
const blocks =
  (change: (block: Json, tag: string, rig: PayoutRig) => unknown): Lie =>
  (method, [tag], truth, rig) =>
    method === "eth_getBlockByNumber" && truth !== null ? change(truth as Json, String(tag), rig) : undefined
const answers =
  (asked: string, answer: unknown): Lie =>
  method =>
    method === asked ? answer : undefined
const block = (rig: PayoutRig, tag: "latest" | "finalized" | "earliest") =>
  rig.anvil.client.request({ method: "eth_getBlockByNumber", params: [tag, false] } as never) as Promise<Json | null>
const changedLogs = (receipt: Json, change: (log: Json) => Json[]): Json => ({
  ...receipt,
  logs: (receipt.logs as Json[]).flatMap(change),
})

/** A receipt in a final block for each transaction that is asked for, whether it was mined or not. */
const invented =
  (succeeded: boolean): Lie =>
  async (method, [hash], _truth, rig) => {
    if (method !== "eth_getTransactionReceipt") return undefined
    const { db } = rig.service.ctx
    const payout = await db
      .selectFrom("transaction_attempts as a")
      .innerJoin("payouts as i", "i.id", "a.payout_id")
      .innerJoin("deposits as d", "d.id", "i.deposit_id")
      .select(["i.token", "i.recipient", "i.amount", "d.address"])
      .where("a.hash", "=", hash as Hash)
      .executeTakeFirst()
    const final = await block(rig, "finalized")
    const at = { transactionHash: hash, blockNumber: final?.number, blockHash: final?.hash }
    const log = payout && {
      ...at,
      address: payout.token,
      topics: [TRANSFER_TOPIC, pad(payout.address), pad(payout.recipient)],
      data: toHex(payout.amount, { size: 32 }),
      logIndex: "0x0",
    }
    const logs = log && succeeded ? [log] : []
    const cost = { gasUsed: "0x5208", effectiveGasPrice: "0x1" }
    return { ...at, ...cost, status: succeeded ? "0x1" : "0x0", logs, logsBloom: succeeded ? "0x1" : "0x0" }
  }

const HUGE = toHex(10n ** 24n)
const feesOf =
  (fee: Hex): Lie =>
  (method, params, truth, rig) => {
    if (method === "eth_maxPriorityFeePerGas" || method === "eth_gasPrice") return fee
    return blocks(block => ({ ...block, baseFeePerGas: fee }))(method, params, truth, rig)
  }
/** A call of `release` ends with a payout's id, and so is the longest there is; the others are the oracle's and multicall's. */
const trials =
  (answer: unknown): Lie =>
  (method, params) =>
    method === "eth_call" && "gas" in (params[0] as Json) ? answer : undefined

/** The lies, by what they claim. */
export const payoutLies: Record<string, Lie> = {
  "no nonce is used": counts(() => 0n),
  "the last nonce is not used": counts(count => (count > 0n ? count - 1n : count)),
  "one nonce more is used": counts(count => count + 1n),
  "sixteen nonces more are used": counts(count => count + 16n),
  "many nonces more are used": counts(() => 65_535n),
  "no receipts": answers("eth_getTransactionReceipt", null),
  "each has succeeded": invented(true),
  "each has failed": invented(false),
  "what is mined has failed": receipts(receipt => ({ ...receipt, status: "0x0", logs: [], logsBloom: "0x0" })),
  "what is mined has moved nothing": receipts(receipt => ({ ...receipt, logs: [], logsBloom: "0x0" })),
  "what is mined has moved more": receipts(receipt =>
    changedLogs(receipt, log => [{ ...log, data: toHex(9_999_999n, { size: 32 }) }]),
  ),
  "what is mined is in a block that is not there": receipts(receipt => {
    const blockHash = newHash()
    return { ...changedLogs(receipt, log => [{ ...log, blockHash }]), blockHash }
  }),
  "what is mined is final": async (method, _params, truth, rig) => {
    if (method !== "eth_getTransactionReceipt" || truth === null) return undefined
    const final = await block(rig, "finalized")
    const at = { blockNumber: final?.number, blockHash: final?.hash }
    return { ...changedLogs(truth as Json, log => [{ ...log, ...at }]), ...at }
  },
  "each has cost a fortune": receipts(receipt => ({ ...receipt, gasUsed: "0xffffff", effectiveGasPrice: HUGE })),
  "each was for free": receipts(receipt => ({ ...receipt, gasUsed: "0x0", effectiveGasPrice: "0x0" })),
  "no gas": answers("eth_getBalance", "0x0"),
  "gas without end": answers("eth_getBalance", HUGE),
  "fees of nothing": feesOf("0x0"),
  "fees of a fortune": feesOf(HUGE),
  "a fortune for data": (method, params) =>
    method === "eth_call" && String((params[0] as Json).data).startsWith("0xf1c7a58b") ? pad(HUGE) : undefined,
  "each would fail": trials(failed("execution reverted: no")),
  "each would succeed": trials("0x"),
  "no gas is enough": answers("eth_estimateGas", failed("gas required exceeds allowance (0)")),
  "calls answer nothing": answers("eth_call", "0x"),
  "no code": answers("eth_getCode", "0x"),
  "other blocks": blocks((block, tag) => (tag.startsWith("0x") ? { ...block, hash: newHash() } : undefined)),
  "other times": blocks(block => ({ ...block, timestamp: "0x1" })),
  "a head far ahead": blocks((block, tag) =>
    tag === "latest" ? { ...block, number: toHex(BigInt(String(block.number)) + 40_000n), hash: newHash() } : undefined,
  ),
  "all is final": blocks((_block, tag, rig) => (tag === "finalized" ? block(rig, "latest") : undefined)),
  "nothing is final": blocks((_block, tag, rig) => (tag === "finalized" ? block(rig, "earliest") : undefined)),
  "an old head": blocks((_block, tag, rig) => (tag === "latest" ? block(rig, "earliest") : undefined)),
  "no logs": answers("eth_getLogs", []),
  "each log twice, and larger": (method, _params, truth) =>
    method === "eth_getLogs"
      ? (truth as Json[]).flatMap(log => [log, { ...log, logIndex: "0x63", data: toHex(9_999_999n, { size: 32 }) }])
      : undefined,
  "sent under another hash": answers("eth_sendRawTransaction", newHash()),
  "not sent: nonce too low": answers("eth_sendRawTransaction", failed("nonce too low: next nonce 9, tx nonce 1")),
  "not sent: no funds": answers("eth_sendRawTransaction", failed("insufficient funds for gas * price + value")),
  "not sent: it never can be": answers("eth_sendRawTransaction", failed("intrinsic gas too low")),
  "not sent: it pays too little": answers("eth_sendRawTransaction", failed("transaction underpriced")),
  "null for all": () => null,
  "errors for all": () => failed("no"),
  "nothing for all": () => DROPPED,
  "another chain": answers("eth_chainId", "0x1"),
  truth: () => undefined,
}

/**
 * Makes a proxy give these false answers, for each call the next that applies, and keep transactions to itself where
 * asked.
 */
export function startLying(liar: RpcProxy, rig: PayoutRig, names: readonly string[], swallows: boolean): void {
  let n = 0
  liar.swallows = swallows
  liar.spoil = async (method, params, truth) => {
    for (const _ of names) {
      const lie = await payoutLies[names[n++ % names.length] as string]?.(method, params, truth, rig)
      if (lie !== undefined) return lie
    }
    return truth
  }
}

/** Makes it answer truthfully. */
export function stopLying(liar: RpcProxy): void {
  liar.swallows = false
  liar.spoil = (_method, _params, truth) => truth
}
