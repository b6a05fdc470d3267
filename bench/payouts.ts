/**
 * Payouts a second, from payouts in the database (durable, where a Postgres server is installed) to mined releases,
 * compared with raw releases that are signed beforehand and sent to the same anvil: one in a request, and as many as
 * the engine has in flight. Each has a wallet of its own, and they take turns. `--against COMMIT` compares with another
 * commit's engine.
 */
import { encodeFunctionData, type Hex } from "viem"
import { depositFactoryAbi, testUsdcAbi } from "../server/src/platform/chain/abi.ts"
import { addressOfTerms, payeeLists, payeesHash } from "../server/src/platform/chain/deposit-terms.ts"
import type { Address } from "../server/src/platform/chain/hex.ts"
import { batch } from "../server/src/platform/chain/rpc.ts"
import { deployDepositFactory } from "../server/test/anvil.ts"
import type { PayoutRig } from "../server/test/payouts.ts"
import { postgresBinaries, startPostgres } from "../server/test/postgres.ts"
import { type Figures, rounds } from "./rounds.ts"

const PAYMENTS = 70
const SHARES = 3
/** Measurements of each in one process, after a warm-up; their median is the figure of the process. */
const TURNS = 3
const IN_FLIGHT = 16
const AMOUNT = 1_000_000n
const PART = 333_333n
const SINGLE = "raw, pre-signed, one a request"
const BATCHED = `raw, pre-signed, ${IN_FLIGHT} a request`
const OF_BATCHED = `payouts, of raw, ${IN_FLIGHT} a request`

const PAYOUTS = PAYMENTS * SHARES

/** The recipients of both. A copy of the rig's, which can't be loaded before its database exists. */
const recipient = (n: number): Address => `0x${(n + 1).toString(16).padStart(40, "e")}` as Address

/** Payouts a second of the engine. */
async function engine(rig: PayoutRig): Promise<number> {
  await rig.anvil.client.mine({ blocks: 3 })
  await rig.empty()
  const shop = await rig.sell([33.3333, 33.3333, 33.3334])
  for (let i = 0; i < PAYMENTS; i++) await rig.paid(shop, AMOUNT)
  const startedAt = performance.now()
  while ((await rig.states()).some(state => state === "queued" || state === "assigned")) await rig.round()
  return PAYOUTS / ((performance.now() - startedAt) / 1_000)
}

let salts = 0

/**
 * Payouts a second of the same number of releases, signed before the clock starts and sent in batches of `atOnce`,
 * until all are mined.
 */
async function raw({ anvil, token }: PayoutRig, factory: Address, atOnce: number): Promise<number> {
  const { client, rpcUrl, accounts } = anvil
  const operator = accounts[2]
  const payees = [333_333, 333_333, 333_334].map((percentE4, i) => ({ address: recipient(i), percentE4 }))
  const owner = recipient(SHARES)
  const terms = { owner, approver: owner, payeesHash: payeesHash(payees), openAfter: 4_000_000_000n } as const
  const salt = `0x${(++salts).toString(16).padStart(64, "0")}` as Hex
  const address = addressOfTerms(factory, salt, terms)
  const args = [address, AMOUNT * BigInt(PAYMENTS)] as const
  await client.writeContractSync({ address: token, abi: testUsdcAbi, functionName: "mint", args })
  const first = await client.getTransactionCount({ address: operator.address })
  const signed = await Promise.all(
    Array.from({ length: PAYOUTS }, (_, i) =>
      operator.signTransaction({
        type: "eip1559",
        chainId: 84532,
        nonce: first + i,
        to: factory,
        gas: 200_000n,
        maxFeePerGas: 20_000_000_000n,
        maxPriorityFeePerGas: 1_000_000_000n,
        data: encodeFunctionData({
          abi: depositFactoryAbi,
          functionName: "release",
          args: [salt, terms, ...payeeLists(payees), token, recipient(i % SHARES), PART],
        }),
      }),
    ),
  )
  const startedAt = performance.now()
  for (let start = 0; start < PAYOUTS; start += atOnce) {
    const calls = signed
      .slice(start, start + atOnce)
      .map(bytes => ({ method: "eth_sendRawTransaction", params: [bytes] }))
    const results = await batch({ url: rpcUrl, network: "bench" }, calls)
    const fault = results.find(result => !result.ok)
    if (fault) throw new Error(`a raw release was refused: ${JSON.stringify(fault)}`)
  }
  while ((await client.getTransactionCount({ address: operator.address })) < first + PAYOUTS);
  return PAYOUTS / ((performance.now() - startedAt) / 1_000)
}

const median = (values: number[]): number => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

async function measure(): Promise<Figures> {
  const postgres = postgresBinaries() ? await startPostgres({ fsync: true }) : undefined
  if (postgres) process.env.DATABASE_URL = postgres.url
  // The module that opens databases reads DATABASE_URL when it is loaded.
  const { startPayoutRig } = await import("../server/test/payouts.ts")
  const rig = await startPayoutRig()
  // Bypasses the proxy through which tests observe the calls.
  for (const endpoint of rig.network.endpoints) endpoint.url = rig.anvil.rpcUrl
  const factory = await deployDepositFactory(rig.anvil.client, rig.anvil.accounts[2].address)
  const ways: Record<string, () => Promise<number>> = {
    [SINGLE]: () => raw(rig, factory, 1),
    [BATCHED]: () => raw(rig, factory, IN_FLIGHT),
    payouts: () => engine(rig),
  }
  const rates: Record<string, number[]> = { [SINGLE]: [], [BATCHED]: [], payouts: [] }
  for (let turn = 0; turn <= TURNS; turn++)
    for (const [name, way] of Object.entries(ways)) {
      const rate = await way()
      // The first warms up.
      if (turn > 0) rates[name]?.push(rate)
    }
  await rig.stop()
  await postgres?.stop()
  const figures = Object.entries(rates).map(([name, values]) => [name, median(values)])
  const { payouts = 0, [BATCHED]: batched = 1 } = Object.fromEntries(figures)
  return { ...Object.fromEntries(figures), [OF_BATCHED]: payouts / batched }
}

await rounds(
  import.meta.filename,
  {
    [SINGLE]: { unit: "/s" },
    [BATCHED]: { unit: "/s" },
    payouts: { unit: "/s", limit: SINGLE },
    [OF_BATCHED]: { unit: "" },
  },
  measure,
)
process.exit(0)
