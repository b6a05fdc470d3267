/** Contract wallets: whether a contract accepts a signature as its own (ERC-1271). */
import { encodeFunctionData, type Hex } from "viem"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"
import { contractWalletAbi } from "./abi.ts"
import { awake } from "./endpoints.ts"
import type { Address } from "./hex.ts"
import type { Network } from "./networks.ts"
import { batch, hexNumber, RpcError, type RpcResult } from "./rpc.ts"

/** `bytes4(keccak256("isValidSignature(bytes32,bytes)"))` as a word. */
const MAGIC_WORD = `0x1626ba7e${"0".repeat(56)}`
/** What nodes answer when the contract failed; any other error is the node's own problem. */
const CONTRACT_FAILED = /revert|evm error|invalid opcode|out of gas|outofgas|invalid jump|stack (under|over)flow/i

/**
 * Ten times what it costs to check a passkey in Solidity. A contract that never returns runs out of gas and does not
 * delay the node.
 */
const GAS = 5_000_000
const PATIENCE_MS = 5_000

/**
 * Whether a contract at this address accepts the signature as its own (ERC-1271); without a contract, nothing is
 * approved. If the network has two endpoints or more, two must confirm it, because anyone may own the address: it may
 * even be the address of a wallet whose key never signed. A node that fails is still asked afterwards, because
 * strangers decide what is asked here.
 */
export async function isApproved(
  { signal: stop }: Pick<Context, "signal">,
  { endpoints, chainId }: Network,
  address: Address,
  hash: Hex,
  signature: Hex,
): Promise<boolean> {
  const data = encodeFunctionData({ abi: contractWalletAbi, functionName: "isValidSignature", args: [hash, signature] })
  const calls = [
    { method: "eth_chainId", params: [] },
    { method: "eth_call", params: [{ to: address, data, gas: hexNumber(GAS) }, "latest"] },
  ]
  const needed = Math.min(2, endpoints.length)
  const ready = awake(endpoints)
  const answers = await Promise.all(
    (ready.length < needed ? endpoints : ready).map(async endpoint => {
      const signal = AbortSignal.any([stop, AbortSignal.timeout(PATIENCE_MS)])
      const [chain, result] = await batch(endpoint, calls, signal).catch((error): RpcResult[] => {
        if (error instanceof RpcError) return []
        throw error
      })
      if (!chain?.ok || chain.value !== hexNumber(chainId)) return undefined
      if (result?.ok && typeof result.value === "string") return result.value.slice(0, 66) === MAGIC_WORD
      return result && !result.ok && CONTRACT_FAILED.test(result.error) ? false : undefined
    }),
  )
  if (answers.includes(false)) return false
  if (answers.filter(Boolean).length >= needed) return true
  throw new ApiError("CHAIN_UNAVAILABLE")
}
