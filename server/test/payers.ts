/** Many payments at once on a local chain, by raw JSON-RPC: what a viem client would take minutes to send. */
import { encodeFunctionData, erc20Abi, type Hex, parseUnits } from "viem"
import { testUsdcAbi } from "../src/platform/chain/abi.ts"
import type { Address } from "../src/platform/chain/hex.ts"
import type { Anvil } from "./anvil.ts"

const GAS = "0x30d40"

/** Pays each address 5 USDC from the chain's accounts in turn; returns hash and sender of each, in order, mined. */
export async function payAll(
  anvil: Anvil,
  token: Address,
  to: readonly string[],
): Promise<{ txHash: Hex; from: Hex }[]> {
  const { client, accounts, rpcUrl } = anvil
  const calls = to.map((address, i) => {
    const from = accounts[(i % accounts.length) as 0].address
    const args = [address as Hex, parseUnits("5", 6)] as const
    const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args })
    return { from, method: "eth_sendTransaction", params: [{ from, to: token, data, gas: GAS }] }
  })
  await client.setAutomine(false)
  const response = await fetch(rpcUrl, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(calls.map(({ method, params }, id) => ({ jsonrpc: "2.0", id, method, params }))),
  })
  const replies = (await response.json()) as { id: number; result: Hex }[]
  await client.mine({ blocks: 1 })
  await client.setAutomine(true)
  const hashes = new Map(replies.map(({ id, result }) => [id, result]))
  return calls.map(({ from }, id) => ({ txHash: hashes.get(id) ?? "0x", from }))
}

/** Gives every account of the chain a million test USDC. */
export async function fundPayers({ client, accounts }: Anvil, token: Address): Promise<void> {
  for (const { address } of accounts)
    await client.writeContractSync({
      address: token,
      abi: testUsdcAbi,
      functionName: "mint",
      args: [address, parseUnits("1000000", 6)],
    })
}
