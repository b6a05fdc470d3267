/** Makes payments as the sandbox's test buyers. */
import { setTimeout as sleep } from "node:timers/promises"
import { type BuyerOptions, openBuyer } from "../../sdk/src/buyer/buyer.ts"
import { authorizationFields, domainFields } from "../../sdk/src/buyer/sign.ts"
import { SluiceError } from "../../sdk/src/errors.ts"
import { fromUnits, toUnits } from "../../sdk/src/money.ts"
import type { Sluice } from "../../sdk/src/sluice.ts"
import { Failure } from "./failure.ts"
import { postSandbox } from "./request.ts"

/** How a payment differs from what the checkout asks for. */
export interface Manner {
  partial?: boolean
  over?: boolean
  late?: boolean
  twice?: boolean
  asAgent?: boolean
  buyer: number
}

type Connected = Sluice & { baseUrl: string }
type Status = Awaited<ReturnType<Sluice["pay"]["status"]>>

const MAX_PER_PAYMENT = "1000000"
const PAUSE_MS = 1_000
const WAIT_MS = 120_000

/**
 * Sends a request to a route of the sandbox; throws a {@link Failure} with a sentence if the service is not a
 * sandbox.
 */
export async function inSandbox(sluice: Connected, path: string, body: object): Promise<Record<string, unknown>> {
  try {
    return (await postSandbox(sluice.baseUrl, path, body)) as Record<string, unknown>
  } catch (error) {
    if (error instanceof SluiceError && error.status === 404)
      throw new Failure(`${sluice.baseUrl} is not a sandbox. Test payments and triggers work only in a sandbox.`)
    throw error
  }
}

/** Pays a checkout in this manner; returns the hashes of the transfers. */
export async function payCheckout(sluice: Connected, id: string, manner: Manner): Promise<string[]> {
  const status = await sluice.pay.status(id)
  if (manner.asAgent) {
    await agentOf(sluice, status, manner.buyer).then(agent => agent.pay(`${sluice.baseUrl}/pay/${id}`))
    return []
  }
  const { payTo } = status
  if (payTo === undefined) throw new Failure(`The checkout ${id} accepts no transfer now: ${status.message}`)
  if (manner.late) await passEnd(sluice, status)
  const hashes: string[] = []
  for (const amount of amountsOf(status, manner)) {
    const { txHash } = await inSandbox(sluice, "pay", { to: payTo, amount, buyer: manner.buyer })
    hashes.push(`${txHash}`)
  }
  return hashes
}

/** The amounts of the transfers to make, in whole tokens. */
function amountsOf(status: Status, { partial, over, twice }: Manner): string[] {
  const { decimals } = status.token
  const amount = toUnits(status.amount, decimals)
  const missing = amount - toUnits(status.amountReceived, decimals)
  if (missing <= 0n && !over && !twice)
    throw new Failure("The whole amount has already arrived. --over and --twice pay more.")
  const open = missing > 0n ? missing : amount
  const units = partial ? [open / 2n] : over ? [open + amount / 2n] : twice ? [open, amount] : [open]
  return units.map(each => fromUnits(each, decimals))
}

/** Moves the sandbox's clock past the end of a checkout. */
export async function passEnd(sluice: Connected, { expiresAt }: { expiresAt: string }): Promise<void> {
  const now = Date.parse(`${(await inSandbox(sluice, "clock", { advance: "1s" })).now}`)
  const leftS = Math.ceil((Date.parse(expiresAt) - now) / 1_000)
  if (leftS >= 0) await inSandbox(sluice, "clock", { advance: `${leftS + 1}s` })
}

/** Opens a buyer who pays by signature (x402). The sandbox's test wallet holds the key. */
async function agentOf(
  sluice: Connected,
  { chainId, token }: { chainId: number; token: { address: string; decimals: number } },
  buyer: number,
): Promise<ReturnType<typeof openBuyer>> {
  const ask = async (method: string, params: unknown[] = []) => await askWallet(sluice, { buyer }, method, params)
  const [address] = (await ask("eth_accounts")) as `0x${string}`[]
  const provider = {
    request: async ({ method, params }: { method: string; params?: unknown }) => await ask(method, params as unknown[]),
  }
  return openBuyer({
    wallet: { address, provider } as BuyerOptions["wallet"],
    maxPerPayment: MAX_PER_PAYMENT,
    tokens: [{ network: `eip155:${chainId}`, ...token }],
  })
}

/**
 * Sends a request to the wallet of a test buyer, or of a merchant of the sandbox, as a page does to a browser's
 * wallet (EIP-1193).
 */
export const askWallet = async (
  sluice: Connected,
  whose: { buyer: number } | { merchant: number },
  method: string,
  params: unknown[] = [],
): Promise<unknown> => (await inSandbox(sluice, "wallet", { method, params, ...whose })).result

/** Calls `look` until it finds something; throws a {@link Failure} with `what` after two minutes. */
export async function waitFor<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
  for (const endsAt = Date.now() + WAIT_MS; Date.now() < endsAt; await sleep(PAUSE_MS)) {
    const found = await look()
    if (found !== undefined) return found
  }
  throw new Failure(`This did not happen within two minutes: ${what}.`, 4)
}

/**
 * Pays a checkout whose money goes into an escrow: the first buyer signs what the checkout's status asks for.
 * Resolves once the money is reserved.
 */
export async function reserve(sluice: Connected, id: string): Promise<void> {
  const { authorization: terms, chainId, token, message } = await sluice.pay.status(id)
  if (!terms) throw new Failure(`Nothing can be reserved for the checkout ${id} now: ${message}`)
  const { primaryType, ...rest } = terms
  const [from = ""] = (await askWallet(sluice, { buyer: 0 }, "eth_accounts")) as string[]
  const { kinds } = (await sluice.facilitator.supported()) as {
    kinds: { network: string; extra?: { name?: string; version?: string } }[]
  }
  const { name, version } = kinds.find(({ network }) => network === `eip155:${chainId}`)?.extra ?? {}
  const authorization = { from, ...rest }
  const typed = {
    domain: { name, version, chainId, verifyingContract: token.address },
    types: { EIP712Domain: domainFields, [primaryType]: authorizationFields },
    primaryType,
    message: authorization,
  }
  const signature = await askWallet(sluice, { buyer: 0 }, "eth_signTypedData_v4", [from, JSON.stringify(typed)])
  await sluice.pay.authorize({ sessionId: id, authorization, signature } as never)
  await waitFor(`${id} is reserved`, async () => {
    const { status } = await sluice.pay.status(id, { wait: 25 })
    return ["pending", "verifying"].includes(status) ? undefined : status
  })
}

/**
 * Sends a call from the merchant's wallet at this address. The sandbox has the keys of the payout wallets with which
 * it started.
 */
export async function sendAsMerchant(sluice: Connected, owner: string, call: object): Promise<void> {
  for (let merchant = 0; ; merchant++) {
    const accounts = await askWallet(sluice, { merchant }, "eth_accounts").catch(error => {
      if (!(error instanceof SluiceError) || error.status !== 400) throw error
      throw new Failure(`The sandbox has no key for the payout wallet ${owner}. Send the call yourself.`)
    })
    if (`${accounts}`.toLowerCase() !== owner.toLowerCase()) continue
    await askWallet(sluice, { merchant }, "eth_sendTransaction", [call])
    return
  }
}
