/** Reorgs in a test: transfers that are mined again and again, and the rounds that follow what the chain has. */
import { encodeFunctionData, erc20Abi, type Hex, parseUnits } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { sweepDue } from "../src/ledger/payouts/make-payouts.ts"
import { verifyRound } from "../src/ledger/settlement/verify-payments.ts"
import type { ExceptionsRig } from "./exceptions.ts"

const DAY_MS = 86_401_000
/** After this long, what a reorg removed is looked for again and believed to be gone. */
const SUSPECT_MS = 31_000

export type Reorgs = ReturnType<typeof reorgsOn>

/** What can be done on a rig's chain, and by its service after that. */
export function reorgsOn(rig: ExceptionsRig) {
  /** The bytes of a transfer, which may be mined again and again. */
  async function signed(from: PrivateKeyAccount, to: string, amount: string, ahead = 0): Promise<Hex> {
    const nonce = (await rig.anvil.client.getTransactionCount({ address: from.address })) + ahead
    const data = encodeFunctionData({
      abi: erc20Abi,
      functionName: "transfer",
      args: [to as Hex, parseUnits(amount, 6)],
    })
    const fees = { gas: 120_000n, maxFeePerGas: 100_000_000_000n, maxPriorityFeePerGas: 1_000_000_000n }
    return await from.signTransaction({ chainId: 84532, type: "eip1559", nonce, to: rig.usdc, data, ...fees })
  }

  async function send(...raw: Hex[]): Promise<Hex> {
    let hash: Hex = "0x"
    for (const serializedTransaction of raw) {
      hash = await rig.anvil.client.sendRawTransaction({ serializedTransaction })
      await rig.anvil.client.waitForTransactionReceipt({ hash })
    }
    return hash
  }

  /** One round of the verification, after these blocks. */
  async function look(blocks = 1): Promise<void> {
    const { service, network, anvil } = rig
    await anvil.client.mine({ blocks })
    const { timestamp } = await anvil.client.getBlock()
    const ahead = Number(timestamp) * 1_000 - service.ctx.now().getTime()
    if (ahead > 0) service.advance(ahead)
    await service.ctx.db
      .updateTable("cursors")
      .set({ run_at: new Date(0) })
      .execute()
    await verifyRound(service.ctx, network)
  }

  /** What the verification does after a reorg: it looks, suspects, and looks again. */
  async function afterReorg(blocks = 7, looks = 3): Promise<void> {
    await look(blocks)
    rig.service.advance(SUSPECT_MS)
    for (let i = 0; i < looks; i++) await look()
  }

  /** Days in which all that is due is swept and paid out. */
  async function days(count = 3): Promise<void> {
    for (let day = 0; day < count; day++) {
      await rig.pass(DAY_MS)
      await sweepDue(rig.service.ctx, rig.network)
      await rig.payOut()
      await look()
    }
  }

  return { signed, send, look, afterReorg, days }
}
