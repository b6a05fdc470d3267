/** Payouts in a test: a service over a real chain behind a proxy, things sold on it, and money in their deposits. */
import type { Hex } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { payoutLane } from "../src/ledger/payouts/payout-lane.ts"
import { checkBooks } from "../src/ledger/reconciliation/check-books.ts"
import { settleDue } from "../src/ledger/settlement/settle.ts"
import { checkWallet } from "../src/ledger/txmanager/lock-wallet.ts"
import { payoutRound } from "../src/ledger/txmanager/run-round.ts"
import type { Pace } from "../src/ledger/txmanager/send-attempts.ts"
import { testUsdcAbi } from "../src/platform/chain/abi.ts"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import type { Network } from "../src/platform/chain/networks.ts"
import type { Signer } from "../src/platform/chain/signer.ts"
import type { Settings } from "../src/platform/config/settings.ts"
import type { OpenDatabase } from "../src/platform/db/open.ts"
import type { PayoutState, Row } from "../src/platform/db/schema.ts"
import type { Tracing } from "../src/platform/tracing/tracing.ts"
import { type Anvil, deployDepositFactory, deployTestUsdc, placeSharedContracts, startAnvil } from "./anvil.ts"
import { type RpcProxy, startProxy } from "./proxy.ts"
import { startService, type TestService } from "./service.ts"
import { signerOf } from "./signer.ts"

/** A recipient by its number. */
export const recipient = (n: number): Address => `0x${(n + 1).toString(16).padStart(40, "e")}` as Address

interface Shop {
  id: string
  deposit: Row<"deposits">
}

export interface PayoutRig {
  service: TestService
  anvil: Anvil
  proxy: RpcProxy
  network: Network
  token: Address
  signer: Signer
  /** Signs for the relay wallet. */
  relayer: Signer
  /** A paywall, divided among the first recipients by these percentages where there are any; the shop's, or another's. */
  sell(percents?: number[], as?: string): Promise<Shop & { splitId: string | undefined }>
  /** The shop at the address that it is paid at now. */
  current(shop: Shop): Promise<Shop>
  /** Pays to the shop's deposit, as a payment that is confirmed and granted; returns its id. The payer is the same unless named. */
  paid(shop: Shop, amount: bigint, by?: PrivateKeyAccount): Promise<string>
  /** One round of the engine. */
  round(signer?: Signer, pace?: Pace): Promise<number>
  /** Compares the logs with the books now, whether or not the hour is over. */
  compareLogs(): Promise<void>
  payouts(): Promise<Row<"payouts">[]>
  states(): Promise<PayoutState[]>
  balanceOf(address: Address): Promise<bigint>
  mint(to: Address, amount: bigint): Promise<{ transactionHash: Hex; blockNumber: bigint; blockHash: Hex }>
  /** Empties the database; the wallet starts again at the nonce that the chain has. */
  empty(): Promise<void>
  stop(): Promise<void>
}

/** Starts everything; `chain`: how its anvil is started. */
export async function startPayoutRig(
  settings: Partial<Settings> = {},
  database?: OpenDatabase,
  chain: Parameters<typeof startAnvil>[0] = {},
  tracing?: Tracing,
): Promise<PayoutRig> {
  const anvil = await startAnvil(chain)
  const { client, accounts } = anvil
  await placeSharedContracts(client)
  const token = await deployTestUsdc(client)
  const [, wallet, relay, payerAccount] = accounts
  const payer = payerAccount.address.toLowerCase() as Address
  const purse = { address: token, abi: testUsdcAbi, functionName: "mint", args: [payer, 10n ** 18n] } as const
  await client.writeContractSync(purse)
  const factory = await deployDepositFactory(client, wallet.address)
  const proxy = await startProxy(anvil.rpcUrl)
  const signer = signerOf(wallet)
  const relayer = signerOf(relay)
  const service = await startService({
    ...(database ? { database } : {}),
    tracing,
    settings: { relayWallet: relayer.address, ...settings },
    networks: [
      {
        name: "base-sepolia",
        chainId: 84532,
        rpcUrls: [proxy.url],
        token,
        confirmations: 1,
        depositFactory: factory,
        sanctionsOracle: undefined,
      },
    ],
  })
  const network = service.ctx.chain.networks[0] as Network
  const { ctx } = service
  const mint: PayoutRig["mint"] = (to, amount) =>
    client.writeContractSync({ address: token, abi: testUsdcAbi, functionName: "mint", args: [to, amount] })
  const payouts = () => ctx.db.selectFrom("payouts").selectAll().orderBy("created_at").orderBy("id").execute()
  return {
    service,
    anvil,
    proxy,
    network,
    token,
    signer,
    relayer,
    sell: async (percents, as = "shop") => {
      const recipients = percents?.map((percent, i) => ({ address: recipient(i), percent }))
      const split = recipients && (await call(service, "/api/console/splits", { name: "s", recipients }, as)).id
      const paywall = { name: "a", price: "0.50", ...(split ? { splitId: split } : {}) }
      const { id } = await call(service, "/api/console/paywalls", paywall, as)
      const deposit = await ctx.db
        .selectFrom("deposits")
        .selectAll()
        .where("resource_id", "=", id)
        .executeTakeFirstOrThrow()
      return { id, deposit, splitId: split }
    },
    current: async ({ id }) => {
      const deposit = await ctx.db
        .selectFrom("paywall_versions")
        .innerJoin("deposits", "deposits.id", "paywall_versions.deposit_id")
        .selectAll("deposits")
        .where("paywall_id", "=", id)
        .where("until_at", "is", null)
        .executeTakeFirstOrThrow()
      return { id, deposit }
    },
    paid: async (shop, amount, by = payerAccount) => {
      const from = by.address.toLowerCase() as Address
      if (from !== payer) await mint(from, amount)
      const args = [shop.deposit.address, amount] as const
      const transfer = { address: token, abi: testUsdcAbi, functionName: "transfer", args } as const
      const receipt = await client.writeContractSync({ ...transfer, account: by })
      await storePayment(service, network, shop, from, amount, receipt)
      // Payouts of any amount: what is beyond the price counts, as what is below the lowest price does.
      const settings = { ...ctx.settings, minAmount: "1000000" }
      await settleDue({ ...ctx, settings }, network)
      const { id } = await ctx.db
        .selectFrom("payments")
        .select("id")
        .where("tx_hash", "=", receipt.transactionHash as Hash)
        .executeTakeFirstOrThrow()
      return id
    },
    round: (by = signer, pace) => payoutRound(ctx, payoutLane(network, by), pace),
    compareLogs: async () => {
      await ctx.db.updateTable("wallets").set({ check_at: null }).execute()
      await checkBooks(ctx, network, signer.address)
    },
    payouts,
    states: async () => (await payouts()).map(row => row.state),
    mint,
    balanceOf: address =>
      client.readContract({ address: token, abi: testUsdcAbi, functionName: "balanceOf", args: [address] }),
    empty: async () => {
      await service.empty()
      await service.merchant("shop")
      await checkWallet(ctx, payoutLane(network, signer))
    },
    stop: async () => {
      await service.stop()
      await proxy.stop()
      await anvil.stop()
    },
  }
}

async function call(service: TestService, url: string, body: object, as: string) {
  const answer = await service.call("POST", url, body, { as })
  if (answer.status !== 201) throw new Error(JSON.stringify(answer.body))
  return answer.body
}

/** A confirmed transfer as the scan would have stored it, due to be settled. */
async function storePayment(
  service: TestService,
  network: Network,
  shop: Shop,
  payer: Address,
  value: bigint,
  receipt: { transactionHash: Hex; blockNumber: bigint; blockHash: Hex },
): Promise<void> {
  const { ctx } = service
  const hash = receipt.transactionHash as Hash
  await ctx.db
    .insertInto("transfers")
    .values({
      chain_id: network.chainId,
      tx_hash: hash,
      token: network.token.address,
      to_address: shop.deposit.address,
      k: 0,
      deposit_id: shop.deposit.id,
      from_address: payer,
      value,
      block_number: receipt.blockNumber,
      block_hash: receipt.blockHash as Hash,
      log_index: 0,
      block_time: ctx.now(),
      state: "confirmed",
      run_at: ctx.now(),
      created_at: ctx.now(),
    })
    .execute()
  const now = ctx.now()
  await ctx.db
    .insertInto("submissions")
    .values({
      resource_id: shop.id,
      by_sender: true,
      chain_id: network.chainId,
      tx_hash: hash,
      address: payer,
      status: "verifying",
      message: "",
      submitted_at: now,
      updated_at: now,
    })
    .execute()
}
