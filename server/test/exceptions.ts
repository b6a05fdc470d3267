/**
 * Money that matches no payment, in a test: a service over a real chain, buyers, another token, a sanctions list,
 * payouts.
 */
import { encodeFunctionData, erc20Abi, type Hex, parseUnits } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import type { EventType } from "../src/account/webhooks/webhook.ts"
import { payoutLane } from "../src/ledger/payouts/payout-lane.ts"
import { checkConsistency } from "../src/ledger/reconciliation/check-consistency.ts"
import { ensureCursor } from "../src/ledger/scanner/scan-round.ts"
import { verifyRound } from "../src/ledger/settlement/verify-payments.ts"
import { checkWallet } from "../src/ledger/txmanager/lock-wallet.ts"
import { payoutRound } from "../src/ledger/txmanager/run-round.ts"
import { otherTokenAbi, sanctionsListAbi, testUsdcAbi } from "../src/platform/chain/abi.ts"
import type { Address } from "../src/platform/chain/hex.ts"
import type { Network } from "../src/platform/chain/networks.ts"
import type { Signer } from "../src/platform/chain/signer.ts"
import type { Settings } from "../src/platform/config/settings.ts"
import {
  type Anvil,
  deployDepositFactory,
  deployOtherToken,
  deploySanctionsList,
  deployTestUsdc,
  placeSharedContracts,
  startAnvil,
} from "./anvil.ts"
import { fundPayers } from "./payers.ts"
import { startService, type TestService } from "./service.ts"
import { signerOf } from "./signer.ts"

/** Deep enough for everything that was mined to be final. */
const FINAL_BLOCKS = 12

export interface ExceptionsRig {
  service: TestService
  anvil: Anvil
  network: Network
  usdc: Address
  other: Address
  signer: Signer
  buyer(i: number): PrivateKeyAccount
  /** Moves the service's clock and the chain's. */
  pass(ms: number): Promise<void>
  /** A transfer in whole tokens (six decimals), mined. */
  pay(to: string, amount: string, from?: number, token?: Address): Promise<Hex>
  /** Rounds of verification and settling, blocks before each. */
  rounds(count?: number, blocks?: number): Promise<void>
  /** One round of the payout engine. */
  payout(): Promise<void>
  /** Rounds of the engine until nothing changes any more and all is final. */
  payOut(): Promise<void>
  balanceOf(address: string, token?: Address): Promise<bigint>
  /** The data of all events of a type, oldest first. */
  notified(type: EventType): Promise<Record<string, unknown>[]>
  sanction(address: string, value: boolean): Promise<void>
  blacklist(address: string, value: boolean): Promise<void>
  /** Empties the database; `shop` is a merchant again. */
  empty(): Promise<void>
  stop(): Promise<void>
}

/** Starts everything. */
export async function startExceptionsRig(settings: Partial<Settings> = {}): Promise<ExceptionsRig> {
  const anvil = await startAnvil({ slotsInAnEpoch: 4 })
  const { client, accounts } = anvil
  const usdc = await deployTestUsdc(client)
  const other = await deployOtherToken(client)
  const wallet = accounts[1]
  const depositFactory = await deployDepositFactory(client, wallet.address)
  const sanctionsOracle = await deploySanctionsList(client)
  await placeSharedContracts(client)
  await fundPayers(anvil, usdc)
  for (const { address } of accounts)
    await client.writeContractSync({
      address: other,
      abi: otherTokenAbi,
      functionName: "mint",
      args: [address, parseUnits("1000", 6)],
    })
  const rest = { token: usdc, depositFactory, confirmations: 3, sanctionsOracle }
  const service = await startService({
    settings,
    networks: [{ name: "base-sepolia", chainId: 84532, rpcUrls: [anvil.rpcUrl], ...rest }],
  })
  const { ctx } = service
  const network = ctx.chain.networks[0] as Network
  const signer = signerOf(wallet)
  /** The chain's clock goes ahead with each block that is mined at once; the service's follows it. */
  const catchUp = async () => {
    const { timestamp } = await client.getBlock()
    const ahead = Number(timestamp) * 1_000 - ctx.now().getTime()
    if (ahead > 0) service.advance(ahead)
    else await client.setNextBlockTimestamp({ timestamp: BigInt(Math.floor(ctx.now().getTime() / 1_000)) + 1n })
  }
  /** Whatever was decided, the rows must add up. */
  const assertBooks = async () => {
    const [fault] = await checkConsistency(ctx, network.chainId)
    if (fault) throw new Error(fault.words)
  }
  const rig: ExceptionsRig = {
    service,
    anvil,
    network,
    usdc,
    other,
    signer,
    buyer: i => accounts[(i + 2) as 2],
    pass: async ms => {
      service.advance(ms)
      await catchUp()
      await client.mine({ blocks: 1 })
    },
    pay: async (to, amount, from = 0, token = usdc) => {
      await catchUp()
      const args = [to as Hex, parseUnits(amount, 6)] as const
      const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args })
      const hash = await client.sendTransaction({ account: rig.buyer(from), to: token, data })
      await client.waitForTransactionReceipt({ hash })
      return hash
    },
    rounds: async (count = 2, blocks = 3) => {
      for (let i = 0; i < count; i++) {
        await client.mine({ blocks })
        await catchUp()
        await ctx.db
          .updateTable("cursors")
          .set({ run_at: new Date(0) })
          .execute()
        await verifyRound(ctx, network)
        await assertBooks()
      }
    },
    payout: async () => void (await payoutRound(ctx, payoutLane(network, signer))),
    payOut: async () => {
      for (let i = 0; i < 3; i++) {
        await rig.payout()
        await client.mine({ blocks: FINAL_BLOCKS })
        await catchUp()
        await assertBooks()
      }
    },
    notified: async type => {
      const events = service.ctx.db.selectFrom("events").select("body").where("type", "=", type)
      const rows = await events.orderBy("created_at").execute()
      return rows.map(({ body }) => JSON.parse(body).data)
    },
    balanceOf: (address, token = usdc) =>
      client.readContract({ address: token, abi: erc20Abi, functionName: "balanceOf", args: [address as Hex] }),
    sanction: async (address, value) =>
      void (await client.writeContractSync({
        address: sanctionsOracle,
        abi: sanctionsListAbi,
        functionName: "setSanctioned",
        args: [address as Hex, value],
      })),
    blacklist: async (address, value) =>
      void (await client.writeContractSync({
        address: usdc,
        abi: testUsdcAbi,
        functionName: value ? "blacklist" : "unBlacklist",
        args: [address as Hex],
      })),
    empty: async () => {
      await service.empty()
      await service.merchant("shop")
      await ensureCursor(ctx, network)
      await catchUp()
      await checkWallet(ctx, payoutLane(network, signer))
    },
    stop: async () => {
      await service.stop()
      await anvil.stop()
    },
  }
  return rig
}
