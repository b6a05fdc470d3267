/**
 * Deploys a contract by a transaction that is the same for everybody: the canonical CREATE2 deployer gives the
 * contract the same address on every network. The signed bytes are written to a file before they are sent, so that an
 * interrupted run can be continued from any point.
 */
import { rmSync } from "node:fs"
import { setTimeout as sleep } from "node:timers/promises"
import { formatEther, formatGwei, type Hex, keccak256 } from "viem"
import { askAny, type Endpoint, hostOf } from "../../platform/chain/endpoints.ts"
import { type Fees, firstFees, type Market, raisedFees } from "../../platform/chain/fees.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import type { NetworkName } from "../../platform/chain/network-facts.ts"
import { batch, hexNumber, type RpcCall, type RpcResult } from "../../platform/chain/rpc.ts"
import { type Signer, signTransaction } from "../../platform/chain/signer.ts"
import { dataParts, readWalletState } from "../../platform/chain/wallet-state.ts"
import { readJsonIfThere, writeFileAtomic } from "../../platform/config/data-dir.ts"

/** The deployment of one contract on one network. */
export interface Deployment {
  network: { name: NetworkName; chainId: number }
  endpoints: readonly Endpoint[]
  /** The kind of contract, in words such as "factory". */
  noun: string
  /** Signs and pays for the deployment, but has no influence on the contract. */
  signer: Signer
  /** The transaction's recipient and data, and the address that the contract will have. */
  to: Address
  data: Hex
  address: Address
  operator: Address
  /** Compares the deployed code with this version's; throws an Error with a sentence if they differ. */
  check: () => Promise<void>
  /** Facts about the contract that are shown before the cost. */
  facts: string[]
  /** The highest price for a unit of gas, in wei. */
  cap: bigint
  /** The file that keeps the signed transaction until the contract is final. */
  keptFile: string
  /** How long a transaction may stay unmined, in milliseconds. */
  patienceMs: number
  say: (line: string) => void
  confirm: (question: string) => Promise<boolean>
}

/** A signed transaction in its stored form. */
interface Kept extends Fees {
  address: Address
  from: Address
  nonce: number
  gas: bigint
  raw: Hex
}

const POLL_MS = 1_000
/** The sender for the gas estimate. Nodes refuse an estimate for an account that can't pay, and anyone may deploy. */
const NOBODY = "0x000000000000000000000000000000000000dead"
/** How much gas is added to the estimate, because the state may change before the transaction is in a block. */
const GAS_PARTS = { more: 6n, of: 5n }

/**
 * Deploys the contract unless it already exists, waits until it is final, and compares its code with this version's.
 */
export async function deployContract(d: Deployment): Promise<void> {
  await checkChain(d)
  do {
    if (await hasCode(d, "latest")) d.say(`The ${d.noun} is at ${checksummed(d.address)}.`)
    else await untilMined(d, (await resume(d)) ?? (await begin(d)))
  } while (!(await untilFinal(d)))
  await d.check()
  rmSync(d.keptFile, { force: true })
  d.say("The contract is final, and its code is this version's.")
}

/** Checks that every endpoint that answers serves the right chain. A deployment on another chain would waste money. */
async function checkChain({ network, endpoints, to }: Deployment): Promise<void> {
  const calls = [
    { method: "eth_chainId", params: [] },
    { method: "eth_getCode", params: [to, "latest"] },
  ]
  const answers = await Promise.all(endpoints.map(each => batch(each, calls).catch(() => undefined)))
  if (answers.every(each => each === undefined))
    throw new Error(`No endpoint of ${network.name} answers: ${endpoints.map(hostOf).join(", ")}.`)
  for (const [i, [chain, code] = []] of answers.entries()) {
    const host = hostOf(endpoints[i] as Endpoint)
    if (chain?.ok && chain.value !== hexNumber(network.chainId))
      throw new Error(`${host} serves chain ${Number(chain.value)}, but ${network.name} is chain ${network.chainId}.`)
    if (code?.ok && code.value === "0x")
      throw new Error(
        `${network.name} has no CREATE2 deployer at ${checksummed(to)}, according to ${host}. Is this the right network?`,
      )
  }
}

/**
 * Sends the transaction of an earlier run again, or its replacement, and returns it. Undefined if there is none, or
 * if it can no longer be mined.
 */
async function resume(d: Deployment): Promise<Kept | undefined> {
  const kept = readKept(d)
  if (!kept) return undefined
  const hash = keccak256(kept.raw)
  const [count, receipt] = await read(d, [
    { method: "eth_getTransactionCount", params: [kept.from, "latest"] },
    { method: "eth_getTransactionReceipt", params: [hash] },
  ])
  if (receipt === null && Number(count) > kept.nonce) {
    d.say(`The earlier transaction ${hash} can't be mined: another transaction of the same account used its nonce.`)
    return undefined
  }
  d.say(`Continuing with the transaction ${hash} from an earlier run.`)
  const { market } = await payerNow(d)
  // This key can only resend another account's transaction, not replace it.
  const isBelow = market.baseFee > kept.maxFee && kept.from === d.signer.address
  if (receipt !== null || !isBelow) return await broadcast(d, kept)
  const fees = raisedFees(kept, market, d.cap)
  if (!fees) throw new Error(tooDear(market, d.cap))
  d.say(`The network's gas price has risen: replacing the transaction at up to ${formatGwei(fees.maxFee)} gwei.`)
  return await broadcast(d, await sign(d, { ...kept, ...fees }))
}

const tooDear = ({ baseFee, tip }: Market, cap: bigint): string =>
  `Gas costs ${formatGwei(baseFee + tip)} gwei now, but --max-fee is ${formatGwei(cap)}. Wait, or raise --max-fee.`

/** Simulates the deployment, shows its cost, asks for confirmation, signs and sends. */
async function begin(d: Deployment): Promise<Kept> {
  const { signer, to, data, address, cap, noun } = d
  const call = { from: signer.address, to, data }
  const [simulated] = await read(d, [{ method: "eth_call", params: [call, "latest"] }])
  if (String(simulated).toLowerCase() !== address)
    throw new Error(
      `The simulation created the ${noun} at ${simulated}, not at ${checksummed(address)}. Nothing was sent.`,
    )
  const { market, balance, count, dataFee } = await payerNow(d)
  if (signer.address === d.operator && count > 0n)
    throw new Error(
      `${checksummed(signer.address)} is the operator's wallet, which the service has already used. The service halts a wallet that sends transactions which the service did not sign. Pay with another account.`,
    )
  const fees = firstFees(market, cap)
  if (!fees) throw new Error(tooDear(market, cap))
  const [estimate] = await read(d, [{ method: "eth_estimateGas", params: [{ from: NOBODY, to, data }] }])
  const gas = (BigInt(String(estimate)) * GAS_PARTS.more) / GAS_PARTS.of
  const cost = gas * fees.maxFee + dataFee
  for (const fact of d.facts) d.say(fact)
  d.say(`Paid by   ${checksummed(signer.address)}, which has ${formatEther(balance)} ether`)
  d.say(
    `Cost      at most ${formatEther(cost)} ether: ${gas} gas at up to ${formatGwei(fees.maxFee)} gwei${dataFee ? ", plus the data fee" : ""}`,
  )
  d.say("The simulation succeeded.")
  if (balance < cost)
    throw new Error(
      `${checksummed(signer.address)} has too little ether: send it at least ${formatEther(cost - balance)} ether on ${d.network.name}.`,
    )
  if (!(await d.confirm(`Deploy it on ${d.network.name}?`))) throw new Error("Nothing was sent.")
  return await broadcast(
    d,
    await sign(d, { address, from: signer.address, nonce: Number.parseInt(count.toString(), 10), gas, ...fees }),
  )
}

/** Signs the transaction and stores it. Whenever this process ends, a stored transaction can be sent again. */
async function sign(d: Deployment, transaction: Omit<Kept, "raw">): Promise<Kept> {
  const { nonce, gas, maxFee, tip, from, address } = transaction
  const unsigned = {
    chainId: d.network.chainId,
    nonce,
    to: d.to,
    data: d.data,
    value: 0n,
    gas,
    maxFeePerGas: maxFee,
    maxPriorityFeePerGas: tip,
  }
  const { raw } = await signTransaction(d.signer, unsigned, new AbortController().signal)
  const kept = { address, from, nonce, gas: `${gas}`, maxFee: `${maxFee}`, tip: `${tip}`, raw }
  await writeFileAtomic(d.keptFile, `${JSON.stringify(kept)}\n`, 0o600)
  return { ...transaction, raw }
}

function readKept({ keptFile, address }: Deployment): Kept | undefined {
  const kept = readJsonIfThere(keptFile) as (Record<"gas" | "maxFee" | "tip", string> & Kept) | undefined
  if (kept?.address !== address) return undefined
  return { ...kept, gas: BigInt(kept.gas), maxFee: BigInt(kept.maxFee), tip: BigInt(kept.tip) }
}

/**
 * Sends the transaction to every endpoint. A refusal is not reported if the endpoint already knows the transaction,
 * or if the nonce was already used.
 */
async function broadcast(d: Deployment, kept: Kept): Promise<Kept> {
  const call = { method: "eth_sendRawTransaction", params: [kept.raw] }
  const answers = await Promise.all(d.endpoints.map(each => batch(each, [call]).catch((error: Error) => error)))
  const refusals = answers.flatMap(answer => {
    const [result] = answer instanceof Error ? [{ ok: false as const, error: answer.message }] : answer
    return result?.ok === false && !/already known|nonce too low/i.test(result.error) ? [result.error] : []
  })
  d.say(`Sent ${keccak256(kept.raw)}${refusals.length > 0 ? ` (an endpoint says: ${refusals.join("; ")})` : ""}.`)
  return kept
}

/** Resolves when the contract is deployed, whether by this transaction or by someone else's. */
async function untilMined(d: Deployment, { raw }: Kept): Promise<void> {
  const hash = keccak256(raw)
  for (const until = performance.now() + d.patienceMs; ; await sleep(POLL_MS)) {
    if (await hasCode(d, "latest")) return d.say(`The ${d.noun} is at ${checksummed(d.address)}.`)
    const [receipt] = await read(d, [{ method: "eth_getTransactionReceipt", params: [hash] }])
    if ((receipt as { status?: unknown } | null)?.status === "0x0")
      throw new Error(`The transaction ${hash} failed on chain. Nothing was deployed; run this command again.`)
    if (performance.now() > until)
      throw new Error(
        `The transaction ${hash} is not in a block yet. Run this command again: it resends the transaction, at a higher gas price if needed.`,
      )
  }
}

/** Resolves with true when the contract is in a final block, and with false if a reorg removed it. */
async function untilFinal(d: Deployment): Promise<boolean> {
  for (let i = 0; !(await hasCode(d, "finalized")); i++) {
    if (i === 0)
      d.say("Waiting up to half an hour until the contract is final. You can stop this command and run it again.")
    await sleep(POLL_MS)
    if (!(await hasCode(d, "latest"))) {
      d.say("A reorg removed the contract.")
      return false
    }
  }
  return true
}

const hasCode = async (d: Deployment, at: "latest" | "finalized"): Promise<boolean> =>
  (await read(d, [{ method: "eth_getCode", params: [d.address, at] }]))[0] !== "0x"

/** The payer's balance, and the price of gas. Throws if too few endpoints report these values. */
async function payerNow(d: Deployment) {
  const { market, balance, pending, latest, dataFee } = await readWalletState(
    d,
    d.signer.address,
    new AbortController().signal,
  )
  const count = pending ?? latest
  if (!market || balance === undefined || count === undefined)
    throw new Error(
      `Too few endpoints of ${d.network.name} report the same balance and gas price: leave out any endpoint that does not answer.`,
    )
  return { market, balance, count, dataFee: dataFee * dataParts(d.data) }
}

/**
 * Queries the first endpoint that answers, and returns the values. If the answer is an error, throws an Error with a
 * sentence that contains the node's own message.
 */
async function read(d: Pick<Deployment, "endpoints" | "network">, calls: RpcCall[]): Promise<unknown[]> {
  const results: RpcResult[] = await askAny(d.endpoints, calls)
  return results.map((result, i) => {
    if (result.ok) return result.value
    throw new Error(`${d.network.name}: ${calls[i]?.method} failed: ${result.error}`)
  })
}
