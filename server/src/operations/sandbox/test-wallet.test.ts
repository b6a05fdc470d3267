import { encodeFunctionData } from "viem"
import { expect, it } from "vitest"
import { deployTestUsdc, startAnvil } from "../../../test/anvil.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import type { ChainClient } from "./chain-client.ts"
import { sendAs } from "./test-wallet.ts"

it("a payment arrives though a payout empties its address after the gas was estimated", async () => {
  const { client, accounts, stop } = await startAnvil()
  try {
    const [buyer, deposit] = accounts
    const address = await deployTestUsdc(client)
    const call = { address, abi: testUsdcAbi, chain: null } as const
    for (const { address: to } of [buyer, deposit])
      await client.writeContractSync({ ...call, functionName: "mint", args: [to, 20n], account: buyer })
    const payout = async () => {
      const transfer = { ...call, functionName: "transfer", args: [buyer.address, 20n] } as const
      await client.writeContractSync({ ...transfer, account: deposit })
    }
    const wallet = {
      ...client,
      sendTransaction: async (transaction: Parameters<typeof client.sendTransaction>[0]) => {
        await payout()
        return await client.sendTransaction(transaction)
      },
    } as unknown as ChainClient
    const data = encodeFunctionData({ abi: testUsdcAbi, functionName: "transfer", args: [deposit.address, 12n] })
    const hash = await sendAs(wallet, buyer, { to: address, data })
    expect((await client.waitForTransactionReceipt({ hash })).status).toBe("success")
  } finally {
    await stop()
  }
})
