/** Wallets of a sandbox, and stock clients that pay with them. */
import { ExactEvmScheme } from "@x402/evm"
import { wrapFetchWithPayment, x402Client } from "@x402/fetch"
import { createPublicClient, erc20Abi, type Hex, http } from "viem"
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts"
import type { Sandbox } from "../../server/test/e2e/program.ts"

export const NETWORK = "eip155:84532"

export interface Wallets {
  token: Hex
  /** A new wallet with 10 USDC and no gas. */
  make(): Promise<PrivateKeyAccount & { key: Hex }>
  /** Base units that ever went from a wallet, or from it to an address. */
  paid(from: Hex, to?: Hex): Promise<bigint[]>
  /** `@x402/fetch` with its caps raised; `sent` has the payment headers. */
  payer(account: PrivateKeyAccount): { client: x402Client; fetch: typeof fetch; sent: string[] }
}

/** Opens them for a running sandbox. */
export function openWallets(sandbox: Sandbox): Wallets {
  const { token, rpcUrl } = sandbox.file() as { token: { address: Hex }; rpcUrl: string }
  const chain = createPublicClient({ transport: http(rpcUrl) })
  return {
    token: token.address,
    make: async () => {
      const key = generatePrivateKey()
      const account = privateKeyToAccount(key)
      const { body } = await sandbox.call("/sandbox/faucet", { address: account.address, amount: "10" })
      await chain.waitForTransactionReceipt({ hash: body.txHash, pollingInterval: 100 })
      return { ...account, key }
    },
    paid: async (from, to) => {
      const query = {
        address: token.address,
        abi: erc20Abi,
        eventName: "Transfer",
        args: to ? { from, to } : { from },
      } as const
      const logs = await chain.getContractEvents({ ...query, fromBlock: 0n, strict: true })
      return logs.map(({ args }) => args.value)
    },
    payer: account => {
      const sent: string[] = []
      const client = new x402Client().register(NETWORK, new ExactEvmScheme(account))
      client.setSpendControls({ allowedAssets: [{ network: NETWORK, asset: token.address }] })
      const recording: typeof fetch = async (input, init) => {
        const request = new Request(input, init)
        const header = request.headers.get("payment-signature")
        if (header) sent.push(header)
        return await fetch(request)
      }
      return { client, fetch: wrapFetchWithPayment(recording, client), sent }
    },
  }
}
