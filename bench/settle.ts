/** Settles checkouts on two sides in turns, to show what one of them adds: each side is a service on a database of its own. */
import { randomBytes } from "node:crypto"
import { performance } from "node:perf_hooks"
import { sql } from "kysely"
import { settleDue } from "../server/src/ledger/settlement/settle.ts"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { startPayoutRig } from "../server/test/payouts.ts"

const SETTLEMENTS = 1_500
const AS = "shop"

const sorted = (values: readonly number[]) => [...values].sort((a, b) => a - b)
/** The value below which this part of the values is. */
export const quantile = (values: readonly number[], q: number): number =>
  sorted(values)[Math.ceil(values.length * q) - 1] ?? Number.NaN

/** A service on a database of its own of one server. */
export async function startSide(
  postgresUrl: string,
  name: string,
  settings: Parameters<typeof startPayoutRig>[0] = {},
) {
  const admin = await openPostgres(postgresUrl, () => {})
  await sql`create database ${sql.id(name)}`.execute(admin.db)
  await admin.close()
  const url = new URL(postgresUrl)
  url.pathname = `/${name}`
  const database = await openPostgres(url.href, error => process.stderr.write(`database: ${error.message}\n`))
  const rig = await startPayoutRig(settings, database)
  await rig.empty()
  const merchantId = await rig.service.merchant(AS)
  const paywall = await rig.sell()
  const { body } = await rig.service.call(
    "POST",
    "/api/console/api-keys",
    { name: "server", scopes: ["read", "checkouts"] },
    { as: AS },
  )
  return { rig, database, merchantId, paywallId: paywall.id, key: body.key as string }
}
/** One of them. */
export type Side = Awaited<ReturnType<typeof startSide>>

/** Pays one more checkout of the merchant; returns the milliseconds from the confirmed transfer to the settled checkout. */
export async function settle({ rig, key, merchantId }: Side): Promise<number> {
  const { ctx } = rig.service
  const { network } = rig
  const { body } = await rig.service.call("POST", "/api/checkouts", { amount: "5" }, { headers: { "x-api-key": key } })
  const deposit = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", body.id)
    .executeTakeFirstOrThrow()
  const now = ctx.now()
  const hash = `0x${randomBytes(32).toString("hex")}` as never
  const { id } = await ctx.db
    .insertInto("transfers")
    .values({
      chain_id: network.chainId,
      tx_hash: hash,
      token: rig.token,
      to_address: deposit.address,
      k: 0,
      deposit_id: deposit.id,
      from_address: `0x${randomBytes(20).toString("hex")}` as never,
      value: 5_000_000n,
      block_number: 1n,
      block_hash: hash,
      log_index: 0,
      block_time: now,
      state: "seen",
      created_at: now,
    })
    .returning("id")
    .executeTakeFirstOrThrow()
  const from = performance.now()
  await ctx.db.updateTable("transfers").set({ state: "confirmed", run_at: now }).where("id", "=", id).execute()
  await settleDue(ctx, network)
  const ms = performance.now() - from
  const { status } = await ctx.db
    .selectFrom("checkout_sessions")
    .select("status")
    .where("id", "=", body.id)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirstOrThrow()
  if (status !== "confirmed") throw new Error(`the checkout is ${status}`)
  return ms
}

/** Settles in turns and prints what each side took; `between` is called after each hundred. Returns the median of the pairs' ratios. */
export async function compare(
  sides: readonly { name: string; side: Side; times: number[] }[],
  say: (text: string) => void,
  between: () => Promise<unknown>,
): Promise<number> {
  for (let n = -100; n < SETTLEMENTS; n++) {
    // In turns, and each first as often as second.
    for (const { side, times } of n % 2 === 0 ? sides : sides.toReversed()) {
      const ms = await settle(side)
      if (n >= 0) times.push(ms)
    }
    if (n % 100 === 0) await between()
  }
  say(`\na settlement, one merchant receives all, ${SETTLEMENTS} in turns: median, mean of the middle 80 %, p95, ms`)
  const middle = (times: readonly number[]) => {
    const kept = sorted(times).slice(times.length * 0.1, times.length * 0.9)
    return kept.reduce((sum, ms) => sum + ms, 0) / kept.length
  }
  for (const { name, times } of sides)
    say(
      `  ${name.padEnd(20)}${[quantile(times, 0.5), middle(times), quantile(times, 0.95)].map(ms => ms.toFixed(3).padStart(9)).join("")}`,
    )
  const [without = [], withThem = []] = sides.map(({ times }) => times)
  // Each pair was measured at about the same time, so what else the machine did is in both.
  const ratios = withThem.map((ms, i) => ms / (without[i] ?? Number.NaN))
  say(
    `  ratio: of the medians ${(quantile(withThem, 0.5) / quantile(without, 0.5)).toFixed(3)}, of the means ${(middle(withThem) / middle(without)).toFixed(3)}, median of the pairs ${quantile(ratios, 0.5).toFixed(3)}`,
  )
  return quantile(ratios, 0.5)
}
