/**
 * Asks contract wallets whether they accept a signature as their own (ERC-1271), or would accept it once they are
 * deployed (ERC-6492). Everything is a simulation; nothing that a caller names is ever executed.
 */
import {
  encodeDeployData,
  encodeFunctionData,
  erc6492SignatureValidatorAbi,
  erc6492SignatureValidatorByteCode,
  type Hex,
} from "viem"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"
import { contractWalletAbi } from "./abi.ts"
import { awake } from "./endpoints.ts"
import type { Address } from "./hex.ts"
import type { Network } from "./networks.ts"
import { batch, hexNumber, type RpcCall, RpcError, type RpcResult } from "./rpc.ts"

/** `bytes4(keccak256("isValidSignature(bytes32,bytes)"))` as a word. */
const MAGIC_WORD = `0x1626ba7e${"0".repeat(56)}`
/** What nodes answer when the contract failed; any other error is the node's own problem. */
const CONTRACT_FAILED = /revert|evm error|invalid opcode|out of gas|outofgas|invalid jump|stack (under|over)flow/i

/**
 * Ten times the cost of checking a passkey in Solidity. A contract that never returns runs out of gas and does not
 * delay the node.
 */
const GAS = 5_000_000
/**
 * The same amount of gas again, to deploy the wallet first: the largest code that a contract may have costs 4,900,000.
 */
const DEPLOYING_GAS = 2 * GAS
const PATIENCE_MS = 5_000
/**
 * The sender of the simulated deployment: an address without a key. The default is the zero address, which some wallets
 * take for a gas estimate. Such wallets then accept what they would otherwise refuse.
 */
const NOBODY = "0x000000000000000000000000000000000000dead"

/** A signature that was not made by the key of the address. */
interface AskedWallet {
  address: Address
  hash: Hex
  /** Bare: without the wrapper of ERC-6492. */
  signature: Hex
  isWrapped: boolean
  /** The signature in its wrapper, if it also counts before the wallet is deployed. */
  counterfactual: Hex | undefined
}

type Verdict = "accepted" | "refused" | "undeployed"

/**
 * Whether the wallet at this address accepts the signature as its own. Without a contract, it accepts nothing, except
 * by simulating the deployment that a `counterfactual` signature names. If the network has two endpoints or more, two
 * must confirm the answer. Anyone may own the address: it may even be the address of a wallet whose key never signed. A
 * node that fails here is still used afterwards, because strangers decide what is asked here. Throws
 * `CHAIN_UNAVAILABLE`.
 */
export async function askWallet(
  { signal: stop }: Pick<Context, "signal">,
  { endpoints, chainId }: Network,
  asked: AskedWallet,
): Promise<Verdict> {
  const calls = callsFor(asked)
  const needed = Math.min(2, endpoints.length)
  const ready = awake(endpoints)
  const answers = await Promise.all(
    (ready.length < needed ? endpoints : ready).map(async endpoint => {
      const signal = AbortSignal.any([stop, AbortSignal.timeout(PATIENCE_MS)])
      const [chain, ...results] = await batch(endpoint, calls, signal).catch((error): RpcResult[] => {
        if (error instanceof RpcError) return []
        throw error
      })
      return chain?.ok && chain.value === hexNumber(chainId) ? verdictOf(asked, results) : undefined
    }),
  )
  const no = answers.find(answer => answer === "refused" || answer === "undeployed")
  if (no) return no
  if (answers.filter(Boolean).length >= needed) return "accepted"
  throw new ApiError("CHAIN_UNAVAILABLE")
}

function callsFor({ address, hash, signature, isWrapped, counterfactual }: AskedWallet): RpcCall[] {
  const data = encodeFunctionData({ abi: contractWalletAbi, functionName: "isValidSignature", args: [hash, signature] })
  return [
    { method: "eth_chainId", params: [] },
    { method: "eth_call", params: [{ to: address, data, gas: hexNumber(GAS) }, "latest"] },
    ...(isWrapped ? [{ method: "eth_getCode", params: [address, "latest"] }] : []),
    ...(counterfactual ? [{ method: "eth_call", params: [deploying(address, hash, counterfactual), "latest"] }] : []),
  ]
}

/** The reference validator of ERC-6492 as creation code: it returns one byte, and nothing is created. */
const deploying = (address: Address, hash: Hex, signature: Hex) => ({
  from: NOBODY,
  gas: hexNumber(DEPLOYING_GAS),
  data: encodeDeployData({
    abi: erc6492SignatureValidatorAbi,
    bytecode: erc6492SignatureValidatorByteCode,
    args: [address, hash, signature],
  }),
})

/** The verdict of one endpoint; undefined if it gives none. */
function verdictOf(
  { isWrapped, counterfactual }: AskedWallet,
  [approval, code, simulated]: readonly RpcResult[],
): Verdict | undefined {
  if (!isWrapped) return judged(approval, value => value.slice(0, 66) === MAGIC_WORD)
  if (!code?.ok || typeof code.value !== "string") return undefined
  // The wrapper of a deployed wallet is ignored: the caller chooses what its call would change first.
  if (code.value !== "0x") return judged(approval, value => value.slice(0, 66) === MAGIC_WORD)
  return counterfactual ? judged(simulated, value => value === "0x01") : "undeployed"
}

function judged(result: RpcResult | undefined, isYes: (value: string) => boolean): Verdict | undefined {
  if (result?.ok && typeof result.value === "string") return isYes(result.value) ? "accepted" : "refused"
  return result && !result.ok && CONTRACT_FAILED.test(result.error) ? "refused" : undefined
}
