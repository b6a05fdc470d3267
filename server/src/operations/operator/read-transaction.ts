/**
 * Rebuilds the signed bytes of a transaction from a node's answer, so that its hash and its signature can be checked.
 */
import { type Hex, keccak256, parseTransaction, recoverTransactionAddress, serializeTransaction } from "viem"
import { ask, awake } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { ReachableChain } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"

export interface SignedTransaction {
  hash: Hash
  raw: Hex
  /** Recovered from the signature, not taken from the node. */
  from: Address
  chainId: number
  nonce: bigint
  /** Null if the transaction created a contract. */
  to: Address | null
  data: Hex
  value: bigint
  gas: bigint
  /** In wei per unit of gas. */
  maxFee: bigint
  tip: bigint
}

/**
 * Reads the transaction with this hash from the answer to `eth_getTransactionByHash`; undefined if the answer is not
 * a transaction or has another hash. The node need not be trusted for the result. Only types 0, 1 and 2 are read,
 * because our wallets send no others.
 */
async function readTransaction(answer: unknown, hash: Hash): Promise<SignedTransaction | undefined> {
  if (typeof answer !== "object" || answer === null) return undefined
  try {
    const raw = serialized(answer as Record<string, string>)
    if (keccak256(raw) !== hash) return undefined
    // Read from the bytes, whose hash is verified, and not from the answer.
    const { chainId, nonce, to, data, value, gas, ...fees } = parseTransaction(raw)
    const maxFee = fees.maxFeePerGas ?? fees.gasPrice ?? 0n
    return {
      hash,
      raw,
      from: (
        await recoverTransactionAddress({ serializedTransaction: raw as `0x02${string}` })
      ).toLowerCase() as Address,
      chainId: chainId ?? 0,
      nonce: BigInt(nonce ?? 0),
      to: (to?.toLowerCase() ?? null) as Address | null,
      data: data ?? "0x",
      value: value ?? 0n,
      gas: gas ?? 0n,
      maxFee,
      tip: fees.maxPriorityFeePerGas ?? maxFee,
    }
  } catch {
    // A field is missing or not a number, so this is not the transaction.
    return undefined
  }
}

const types = { "0x0": "legacy", "0x1": "eip2930", "0x2": "eip1559" } as const

function serialized(answered: Record<string, string>): Hex {
  const type = types[(answered.type ?? "0x0") as keyof typeof types]
  const number = (name: string) => BigInt(answered[name] ?? "none")
  const [r, s] = ["r", "s"].map(name => `0x${number(name).toString(16).padStart(64, "0")}` as Hex)
  if (type === undefined || r === undefined || s === undefined)
    throw new Error("not a transaction of a kind that a wallet of ours sends")
  const common = {
    nonce: Number.parseInt(number("nonce").toString(), 10),
    to: answered.to as Hex | null,
    data: answered.input as Hex,
    value: number("value"),
    gas: number("gas"),
  }
  const chainId = answered.chainId === undefined ? undefined : Number.parseInt(number("chainId").toString(), 10)
  const v = number("v")
  if (type === "legacy") {
    // Before EIP-155, a signature did not name its chain.
    const named = v >= 35n && chainId !== undefined ? { chainId } : {}
    return serializeTransaction({ type, ...common, ...named, gasPrice: number("gasPrice") } as never, { r, s, v })
  }
  const listed = { ...common, chainId, accessList: answered.accessList as never }
  const yParity = v === 0n || v === 27n ? 0 : 1
  const fees =
    type === "eip2930"
      ? { gasPrice: number("gasPrice") }
      : { maxFeePerGas: number("maxFeePerGas"), maxPriorityFeePerGas: number("maxPriorityFeePerGas") }
  return serializeTransaction({ type, ...listed, ...fees } as never, { r, s, yParity })
}

/**
 * Returns a transaction that one of the chain's endpoints knows, checked by its signature; undefined if none knows
 * it.
 */
export async function fetchTransaction(
  ctx: Context,
  { endpoints }: Pick<ReachableChain, "endpoints">,
  hash: Hash,
): Promise<SignedTransaction | undefined> {
  const call = { method: "eth_getTransactionByHash", params: [hash] }
  const answers = await Promise.all(awake(endpoints).map(endpoint => ask(endpoint, [call], ctx.signal)))
  for (const answer of answers) {
    const reply = answer?.[0]
    const transaction = reply?.ok ? await readTransaction(reply.value, hash) : undefined
    if (transaction) return transaction
  }
  return undefined
}
