/**
 * Payouts a second, from payouts in the database to mined releases, beside raw releases that were signed before and are
 * sent to the same anvil: one in a request, and as many as the engine has in flight. Each has a wallet of its own; the runs
 * take turns, and medians are printed.
 */
import { encodeFunctionData, type Hex } from "viem"
import { depositFactoryAbi, testUsdcAbi } from "../server/src/chain/abi.ts"
import { addressOfTerms, payeeLists, payeesHash } from "../server/src/chain/deposit-terms.ts"
import { batch } from "../server/src/chain/rpc.ts"
import { deployDepositFactory } from "../server/test/anvil.ts"
import { postgresBinaries, startPostgres } from "../server/test/postgres.ts"

const PAYMENTS = 70
const SHARES = 3
const RUNS = 3
const IN_FLIGHT = 16
const AMOUNT = 1_000_000n
const PART = 333_333n

const postgres = postgresBinaries() ? await startPostgres() : undefined
if (postgres) process.env.DATABASE_URL = postgres.url
// What opens databases looks at DATABASE_URL when it is loaded.
const { recipient, startPayoutRig } = await import("../server/test/payouts.ts")
const rig = await startPayoutRig()
const { client, accounts, rpcUrl } = rig.anvil
// Past the proxy that tests look through.
for (const endpoint of rig.network.endpoints) endpoint.url = rpcUrl
const payouts = PAYMENTS * SHARES

/** Payouts a second of the engine. */
async function engine(): Promise<number> {
  await client.mine({ blocks: 3 })
  await rig.empty()
  const shop = await rig.sell([33.3333, 33.3333, 33.3334])
  for (let i = 0; i < PAYMENTS; i++) await rig.paid(shop, AMOUNT)
  const startedAt = performance.now()
  while ((await rig.states()).some(state => state === "queued" || state === "assigned")) await rig.round()
  return payouts / ((performance.now() - startedAt) / 1_000)
}

const operator = accounts[2]
const factory = await deployDepositFactory(client, operator.address)
let salts = 0

/** The same number of releases, signed before the clock starts, sent in batches of so many; until all are mined. */
async function raw(atOnce: number): Promise<number> {
  const payees = [333_333, 333_333, 333_334].map((percentE4, i) => ({ address: recipient(i), percentE4 }))
  const owner = recipient(SHARES)
  const terms = { owner, approver: owner, payeesHash: payeesHash(payees), openAfter: 4_000_000_000n } as const
  const salt = `0x${(++salts).toString(16).padStart(64, "0")}` as Hex
  const address = addressOfTerms(factory, salt, terms)
  const args = [address, AMOUNT * BigInt(PAYMENTS)] as const
  await client.writeContractSync({ address: rig.token, abi: testUsdcAbi, functionName: "mint", args })
  const first = await client.getTransactionCount({ address: operator.address })
  const signed = await Promise.all(
    Array.from({ length: payouts }, (_, i) =>
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
          args: [salt, terms, ...payeeLists(payees), rig.token, recipient(i % SHARES), PART],
        }),
      }),
    ),
  )
  const startedAt = performance.now()
  for (let start = 0; start < payouts; start += atOnce) {
    const calls = signed
      .slice(start, start + atOnce)
      .map(bytes => ({ method: "eth_sendRawTransaction", params: [bytes] }))
    const results = await batch({ url: rpcUrl, network: "bench" }, calls)
    const fault = results.find(result => !result.ok)
    if (fault) throw new Error(`a raw release was refused: ${JSON.stringify(fault)}`)
  }
  while ((await client.getTransactionCount({ address: operator.address })) < first + payouts);
  return payouts / ((performance.now() - startedAt) / 1_000)
}

const median = (values: number[]): number => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

await raw(IN_FLIGHT)
await engine()
const [single, batched, paid]: [number[], number[], number[]] = [[], [], []]
for (let run = 0; run < RUNS; run++) {
  single.push(await raw(1))
  batched.push(await raw(IN_FLIGHT))
  paid.push(await engine())
}
const [singleRate, batchedRate, engineRate] = [median(single), median(batched), median(paid)]
process.stdout.write(
  `${payouts} payouts a run, ${RUNS} runs, ${postgres ? "Postgres" : "the embedded database"}, medians a second:
  raw, pre-signed, one a request    ${singleRate.toFixed(0).padStart(5)}
  raw, pre-signed, ${IN_FLIGHT} a request    ${batchedRate.toFixed(0).padStart(5)}
  payouts                           ${engineRate.toFixed(0).padStart(5)}   ${(engineRate / singleRate).toFixed(2)} of one a request, ${(engineRate / batchedRate).toFixed(2)} of ${IN_FLIGHT}
`,
)
await rig.stop()
await postgres?.stop()
process.exit(0)
