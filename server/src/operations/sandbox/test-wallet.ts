/**
 * `POST /sandbox/wallet`: the wallet of a funded buyer, or a merchant's payout wallet. Pages call it like a browser's
 * wallet (EIP-1193). The wallet signs everything, because its keys are worth nothing and exist only in the sandbox.
 */
import { Type } from "typebox"
import { type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts"
import { invalid } from "../../platform/errors.ts"
import { Strict } from "../../platform/http/schemas.ts"
import type { Server } from "../../platform/http/server.ts"
import type { ChainClient } from "./chain-client.ts"

type Hex = `0x${string}`

interface Parts {
  wallet: ChainClient
  buyers: { privateKey: Hex }[]
  merchants: { payoutKey: Hex }[]
  /** Sends transactions one after the other; each is mined and saved before its hash is returned. */
  mined: (send: () => Promise<Hex>) => Promise<Hex>
}

/** The methods that are passed on to the chain unchanged. */
const READS = ["eth_call", "eth_getBalance", "eth_chainId", "eth_blockNumber", "eth_getTransactionReceipt"]

export function testWalletRoute(app: Server, { wallet, buyers, merchants, mined }: Parts): void {
  app.post(
    "/sandbox/wallet",
    {
      schema: {
        hide: true,
        body: Strict({
          method: Type.String({ maxLength: 64 }),
          params: Type.Optional(Type.Array(Type.Unknown(), { maxItems: 4 })),
          buyer: Type.Optional(Type.Integer({ minimum: 0, maximum: buyers.length - 1 })),
          merchant: Type.Optional(Type.Integer({ minimum: 0, maximum: merchants.length - 1 })),
        }),
      },
    },
    async request => {
      const { method, params = [], buyer = 0, merchant } = request.body
      const key = merchant === undefined ? buyers[buyer]?.privateKey : merchants[merchant]?.payoutKey
      if (key === undefined) throw invalid("buyer", "must be the index of one of the buyers")
      const account = privateKeyToAccount(key)
      if (READS.includes(method)) return { result: await wallet.request({ method, params } as never) }
      switch (method) {
        case "eth_requestAccounts":
        case "eth_accounts":
          return { result: [account.address] }
        case "eth_signTypedData_v4":
          return { result: await account.signTypedData(typedDataOf(params[1])) }
        case "personal_sign":
          return { result: await account.signMessage({ message: { raw: params[0] as Hex } }) }
        case "eth_sendTransaction": {
          const { to, data } = params[0] as { to: Hex; data: Hex }
          return { result: await mined(() => sendAs(wallet, account, { to, data })) }
        }
        default:
          throw invalid("method", "is not one that the test wallet knows")
      }
    },
  )
}

function typedDataOf(text: unknown): Parameters<ReturnType<typeof privateKeyToAccount>["signTypedData"]>[0] {
  try {
    return JSON.parse(String(text))
  } catch {
    throw invalid("params", "must contain the typed data as JSON text")
  }
}

/**
 * The gas that is added in case a payout empties the receiving address after the estimate: a new storage slot costs
 * 17,100 gas.
 */
const PAYOUT_GAS = 30_000n

/** Sends a buyer's transaction with enough gas that a payout in between does not make it revert. */
export async function sendAs(
  wallet: ChainClient,
  account: PrivateKeyAccount,
  transaction: { to: Hex; data: Hex },
): Promise<Hex> {
  const gas = await wallet.estimateGas({ account, ...transaction })
  return await wallet.sendTransaction({ account, chain: null, ...transaction, gas: gas + PAYOUT_GAS })
}
