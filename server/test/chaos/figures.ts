/** After the chaos: the figures are the books' and the chain's logs', to the unit, in each zone, and each payout is its parts. */
import { sql } from "kysely"
import { parseAbiItem, parseUnits } from "viem"
import { transactionsCsv } from "../../src/ledger/books/read-transactions.ts"
import { sumTransactions } from "../../src/ledger/books/sum-transactions.ts"
import type { Address } from "../../src/platform/chain/hex.ts"
import type { Context } from "../../src/platform/context.ts"
import { foldDeltas } from "../../src/products/insight/fold-deltas.ts"
import {
  inAddresses,
  inEscrow,
  sumsOf,
  sumsOfAllTime,
  type Totals,
  totalsOf,
} from "../../src/products/insight/read-figures.ts"
import { balancesOf } from "../../src/products/insight/read-overview.ts"
import { periodsOf } from "../../src/products/insight/zones.ts"
import type { Anvil } from "../anvil.ts"
import { wrongParts } from "../parts.ts"

const zones = ["UTC", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe"]
const HOUR_MS = 3_600_000

type Flow = Record<"in" | "out", bigint>

/** What does not agree, in words. */
export async function wrongFigures(ctx: Context, { client }: Anvil): Promise<string[]> {
  const found = await wrongParts(ctx)
  const { rows: merchants } = await sql<{ id: string }>`select distinct merchant_id as id from books`.execute(ctx.db)
  for (const { id } of merchants) {
    const before = totalsOf(await sumsOfAllTime(ctx, { merchantId: id, chainId: null }))
    await foldDeltas(ctx)
    const totals = totalsOf(await sumsOfAllTime(ctx, { merchantId: id, chainId: null }))
    if (textOf(before) !== textOf(totals)) found.push(`the figures of ${id} change when they are folded`)
    found.push(...(await besideBooks(ctx, id, totals)), ...(await besideZones(ctx, id, totals)))
    for (const of of totals) {
      const logs = await logsOf(ctx, client, id, of.token)
      const came = of.received - of.reversed
      const left = came - inAddresses(of)
      if (came !== logs.in || left !== logs.out)
        found.push(
          `the figures of ${id} have ${came} in and ${left} out, and the chain's logs ${logs.in} and ${logs.out}`,
        )
    }
    found.push(...(await besideFile(ctx, id)))
    const shown = await balancesOf(ctx, id)
    if (shown.length !== totals.length) found.push(`${id} has ${shown.length} balances of ${totals.length} tokens`)
  }
  return found
}

const textOf = (value: unknown) => JSON.stringify(value, (_, each) => (typeof each === "bigint" ? `${each}` : each))

/** The sums of the books, as a merchant would make them of the file. */
async function besideBooks(ctx: Context, merchantId: string, totals: readonly Totals[]): Promise<string[]> {
  const { rows } = await sql<Flow & { token: Address; escrow: bigint }>`select token,
      coalesce(sum(amount) filter (where direction = 'in' and escrow_id is null), 0) as in,
      coalesce(sum(amount) filter (where direction = 'out' and escrow_id is null), 0) as out,
      coalesce(sum(case direction when 'in' then amount when 'out' then -amount end) filter (where escrow_id is not null), 0) as escrow
    from books where merchant_id = ${merchantId} group by token`.execute(ctx.db)
  return rows.flatMap(row => {
    const of = totals.find(({ token }) => token === row.token)
    const agrees =
      of && inAddresses(of) === row.in - row.out && inEscrow(of) === row.escrow && of.received - of.reversed === row.in
    return agrees ? [] : [`the books of ${merchantId} say ${textOf(row)}, and its figures ${textOf(of)}`]
  })
}

/** The totals of the list of payments are what the lines of its file add up to. */
async function besideFile(ctx: Context, merchantId: string): Promise<string[]> {
  const filter = { type: "payment" } as const
  const { data, totalIsLeast } = await sumTransactions(ctx, merchantId, filter)
  if (totalIsLeast) return []
  let file = ""
  for await (const part of transactionsCsv(ctx, merchantId, filter)) file += `${part}`
  const [head = "", ...lines] = file.trim().split("\r\n")
  const at = (name: string) => head.split(",").indexOf(name)
  const sums = new Map<string, bigint>()
  for (const line of lines) {
    const cells = line.split(",")
    const key = `${cells[at("status")]} ${cells[at("token")]}`
    sums.set(key, (sums.get(key) ?? 0n) + parseUnits(`${cells[at("amount")]}`, Number(cells[at("decimals")])))
  }
  const shown = data.map(row => [`${row.status} ${row.token}`, parseUnits(row.amount, row.decimals ?? 0)] as const)
  return shown.length === sums.size && shown.every(([key, sum]) => sums.get(key) === sum)
    ? []
    : [`the payments of ${merchantId} add up to ${textOf(shown)}, and the lines of their file to ${textOf([...sums])}`]
}

/** Whatever the zone, the hours of all days add up to all time. */
async function besideZones(ctx: Context, merchantId: string, totals: readonly Totals[]): Promise<string[]> {
  const { rows } = await sql<{ first: Date; last: Date }>`select min(at) as first, max(at) as last from figures
    where merchant_id = ${merchantId} and seconds = 900`.execute(ctx.db)
  const [{ first, last } = { first: new Date(0), last: new Date(0) }] = rows
  const found: string[] = []
  for (const zone of zones) {
    const bounds = periodsOf(first, new Date(last.getTime() + HOUR_MS), "hour", zone) ?? []
    const sums = totalsOf(await sumsOf(ctx, { merchantId, chainId: null }, bounds))
    if (textOf(sums) !== textOf(totals)) found.push(`the hours of ${merchantId} in ${zone} add up to ${textOf(sums)}`)
  }
  return found
}

const transfer = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)")

/** What the chain's logs have of a token into and out of the addresses of a merchant. */
async function logsOf(ctx: Context, client: Anvil["client"], merchantId: string, token: Address): Promise<Flow> {
  const rows = await ctx.db.selectFrom("deposits").select("address").where("merchant_id", "=", merchantId).execute()
  const own = new Set(rows.map(({ address }) => address as string))
  const logs = await client.getLogs({ address: token, event: transfer, fromBlock: 0n, toBlock: "latest" })
  const flow = { in: 0n, out: 0n }
  for (const { args } of logs) {
    if (own.has(`${args.to}`.toLowerCase())) flow.in += args.value ?? 0n
    if (own.has(`${args.from}`.toLowerCase())) flow.out += args.value ?? 0n
  }
  return flow
}
