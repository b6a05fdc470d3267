/** The requests to a wallet: accounts, networks, balances, signatures, transfers. */
import type { NetworkFacts, TokenFacts } from "../page-data.ts"
import type { Provider } from "./wallets.ts"

/** A fault of a wallet: refused by its user, busy with another request, or something else. */
export class WalletFault extends Error {
  readonly kind: "rejected" | "busy" | "other"
  constructor(kind: "rejected" | "busy" | "other", message: string) {
    super(message)
    this.kind = kind
  }
}

const REJECTED: unknown[] = [4001, "ACTION_REJECTED"]
const HASH = /^0x[0-9a-f]{64}$/i
const BUSY = -32002
const UNKNOWN_NETWORK = 4902

interface Fault {
  code?: number | string
  message?: string
  data?: { originalError?: { code?: number } }
}

async function ask<T>(provider: Provider, method: string, params: unknown[] = []): Promise<T> {
  try {
    return (await provider.request({ method, params })) as T
  } catch (error) {
    // Code may throw anything, even nothing.
    const { code, message = String(error), data } = (error ?? {}) as Fault
    const isRejected = REJECTED.includes(code) || REJECTED.includes(data?.originalError?.code)
    const kind = isRejected ? "rejected" : code === BUSY ? "busy" : "other"
    throw Object.assign(new WalletFault(kind, message), { cause: error })
  }
}

/** The account that the wallet offers, in the wallet's own spelling. */
export async function accountOf(provider: Provider): Promise<string> {
  const [account] = await ask<string[]>(provider, "eth_requestAccounts")
  if (account === undefined) throw new WalletFault("rejected", "no account")
  return account
}

/** Whether the wallet is on this network. */
export const isOnNetwork = async (provider: Provider, { chainId }: NetworkFacts): Promise<boolean> =>
  (await chainOf(provider)) === chainId

/** The chain id of the wallet's current network. */
export const chainOf = async (provider: Provider): Promise<number> =>
  Number(await ask<string | number>(provider, "eth_chainId"))

/** Switches the wallet to the network, and adds the network if the wallet does not know it. */
export async function switchTo(provider: Provider, network: NetworkFacts): Promise<void> {
  const chainId = `0x${network.chainId.toString(16)}`
  try {
    await ask(provider, "wallet_switchEthereumChain", [{ chainId }])
  } catch (error) {
    const fault = (error as { cause?: Fault }).cause
    const code = fault?.data?.originalError?.code ?? fault?.code
    if (code !== UNKNOWN_NETWORK || network.rpcUrl === null) throw error
    await ask(provider, "wallet_addEthereumChain", [
      {
        chainId,
        chainName: network.title,
        nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
        rpcUrls: [network.rpcUrl],
        ...(network.explorer === null ? {} : { blockExplorerUrls: [network.explorer] }),
      },
    ])
    await ask(provider, "wallet_switchEthereumChain", [{ chainId }])
  }
}

const word = (value: string | bigint): string =>
  (typeof value === "bigint" ? value.toString(16) : value.toLowerCase().replace(/^0x/, "")).padStart(64, "0")

/** The account's balance of the token, in base units. */
export async function tokenBalance(provider: Provider, token: TokenFacts, account: string): Promise<bigint> {
  const data = `0x70a08231${word(account)}`
  const answer = await ask<string>(provider, "eth_call", [{ to: token.address, data }, "latest"])
  return BigInt(answer === "0x" ? 0 : answer)
}

/** Whether the account can pay the network's fee. Any ether counts, because wallets know the fee better. */
export async function hasGas(provider: Provider, account: string): Promise<boolean> {
  return BigInt(await ask<string>(provider, "eth_getBalance", [account, "latest"])) > 0n
}

/** The payment: base units of the token, to the checkout's address. */
export interface Due {
  token: TokenFacts
  chainId: number
  payTo: string
  value: bigint
}

/**
 * Makes the wallet send a transfer; returns its hash. The request names the network, so a wallet that was switched to
 * another one refuses it. Throws if the wallet answers with anything but a hash: the transfer may have been sent.
 */
export async function sendTransfer(provider: Provider, from: string, due: Due): Promise<string> {
  const { token, chainId, payTo, value } = due
  const data = `0xa9059cbb${word(payTo)}${word(value)}`
  const transfer = { from, to: token.address, data, value: "0x0", chainId: `0x${chainId.toString(16)}` }
  const hash = await ask<unknown>(provider, "eth_sendTransaction", [transfer])
  if (typeof hash !== "string" || !HASH.test(hash)) throw new WalletFault("other", "it returned no hash")
  return hash.toLowerCase()
}

/** An authorization in the form that the server accepts (EIP-3009). */
export interface Authorization {
  from: string
  to: string
  value: string
  validAfter: string
  validBefore: string
  nonce: string
}

const fields = (...list: string[]) =>
  list.map(field => {
    const [type = "", name = ""] = field.split(" ")
    return { name, type }
  })

/**
 * Makes the wallet sign an authorization of the amount; returns it with its signature. Only its recipient can use an
 * authorization to receive.
 */
export async function signAuthorization(
  provider: Provider,
  from: string,
  { token, chainId, payTo, value }: Due,
  terms: { primaryType: "TransferWithAuthorization" | "ReceiveWithAuthorization"; nonce: string; validBefore: string },
): Promise<{ authorization: Authorization; signature: string }> {
  const authorization = {
    from,
    to: payTo,
    value: value.toString(),
    validAfter: "0",
    validBefore: terms.validBefore,
    nonce: terms.nonce,
  }
  const typed = {
    types: {
      EIP712Domain: fields("string name", "string version", "uint256 chainId", "address verifyingContract"),
      [terms.primaryType]: fields(
        "address from",
        "address to",
        "uint256 value",
        "uint256 validAfter",
        "uint256 validBefore",
        "bytes32 nonce",
      ),
    },
    domain: { name: token.name, version: token.version, chainId, verifyingContract: token.address },
    primaryType: terms.primaryType,
    message: authorization,
  }
  const signature = await ask<string>(provider, "eth_signTypedData_v4", [from, JSON.stringify(typed)])
  return { authorization, signature }
}

/** 32 random bytes. */
export function newNonce(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(32))
  return `0x${[...bytes].map(byte => byte.toString(16).padStart(2, "0")).join("")}`
}

/** Makes the wallet sign a text (EIP-191); returns the signature. */
export function signMessage(provider: Provider, from: string, message: string): Promise<string> {
  const hex = [...new TextEncoder().encode(message)].map(byte => byte.toString(16).padStart(2, "0")).join("")
  return ask<string>(provider, "personal_sign", [`0x${hex}`, from])
}
