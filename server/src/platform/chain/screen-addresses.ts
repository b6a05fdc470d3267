/**
 * Finds out which addresses the service must not serve. Sources are a list file in any text format (OFAC's SDN lists,
 * or one address a line) and a sanctions oracle on chain (Chainalysis' interface). Every decision is stored with its
 * source and time.
 */
import { readFileSync, statSync } from "node:fs"
import { decodeFunctionResult, encodeFunctionData, parseAbi } from "viem"
import type { Context } from "../context.ts"
import { awake } from "./endpoints.ts"
import type { Address } from "./hex.ts"
import { askAgreed } from "./in-time.ts"
import { multicall, readMulticall } from "./multicall.ts"
import type { Network } from "./networks.ts"
import { noteDissent } from "./note-endpoint-troubles.ts"
import type { RpcResult } from "./rpc.ts"
import type { Screening } from "./screening.ts"

/** An oracle's "not listed" is cached for this long. */
const CLEAR_MS = 3_600_000
const READS_PER_CALL = 500
/** A statement takes 65,535 values, and a flood may come from any number of senders. */
const ADDRESSES_PER_STATEMENT = 1_000

const oracleAbi = parseAbi(["function isSanctioned(address) view returns (bool)"])

interface List {
  path: string
  changedAt: number
  addresses: Set<string>
}

let lastGood: List | undefined

/**
 * Returns the addresses of the list file, read again whenever it changes. If the file can't be read or contains no
 * address, returns those of the last successful reading, else undefined. A file that is being replaced must not clear
 * everybody.
 */
export function sanctionedAddresses(path: string): Set<string> | undefined {
  const good = lastGood?.path === path ? lastGood : undefined
  try {
    const changedAt = statSync(path).mtimeMs
    if (good?.changedAt === changedAt) return good.addresses
    const found = readFileSync(path, "utf8").match(/\b0x[0-9a-f]{40}\b/gi) ?? []
    if (found.length > 0)
      lastGood = { path, changedAt, addresses: new Set(found.map(address => address.toLowerCase())) }
    return found.length > 0 ? lastGood?.addresses : good?.addresses
  } catch {
    return good?.addresses
  }
}

/** Whether there is any source of sanctions; without one, everyone is clear. */
export const isScreened = ({ settings, chain }: Context): boolean =>
  settings.sanctionsFile !== undefined || chain.networks.some(network => network.sanctionsOracle !== undefined)

/**
 * Screens addresses against every configured source, the oracle in batches; stores each new decision. `subject` says
 * what the decision was for, such as `pay:pw_…`. Without a source everyone is clear.
 */
export async function screen(
  ctx: Context,
  addresses: readonly Address[],
  subject: string,
): Promise<Map<Address, Screening>> {
  const screened = new Map<Address, Screening>()
  for (let start = 0; start < addresses.length; start += ADDRESSES_PER_STATEMENT)
    for (const [address, screening] of await screenSome(
      ctx,
      addresses.slice(start, start + ADDRESSES_PER_STATEMENT),
      subject,
    ))
      screened.set(address, screening)
  return screened
}

async function screenSome(
  ctx: Context,
  addresses: readonly Address[],
  subject: string,
): Promise<Map<Address, Screening>> {
  const answers: Map<Address, Screening>[] = []
  const path = ctx.settings.sanctionsFile
  if (path !== undefined) {
    const list = sanctionedAddresses(path)
    const byFile = new Map(
      addresses.map(address => [address, !list ? "unknown" : list.has(address) ? "listed" : "clear"] as const),
    )
    await keep(ctx, byFile, "file", subject)
    answers.push(byFile)
  }
  const oracle = ctx.chain.networks.find(network => network.sanctionsOracle !== undefined)
  if (oracle) answers.push(await askOracle(ctx, oracle.name, addresses, subject))
  const worst = (address: Address): Screening => {
    const all = answers.map(answer => answer.get(address))
    if (all.includes("listed")) return "listed"
    return all.includes("unknown") ? "unknown" : "clear"
  }
  return new Map(addresses.map(address => [address, worst(address)]))
}

/** Which source last listed an address: `file` or `oracle <network> <address>`; the time is in `screenings`. */
export async function listedBy(ctx: Context, address: Address): Promise<string> {
  const last = await ctx.db
    .selectFrom("screenings")
    .select("source")
    .where("address", "=", address)
    .where("listed", "=", true)
    .orderBy("id", "desc")
    .limit(1)
    .executeTakeFirst()
  return last?.source ?? "unknown"
}

async function askOracle(
  ctx: Context,
  name: string,
  addresses: readonly Address[],
  subject: string,
): Promise<Map<Address, Screening>> {
  const network = ctx.chain.networks.find(each => each.name === name)
  const oracle = network?.sanctionsOracle
  if (!network || !oracle || addresses.length === 0) return new Map()
  const source = `oracle ${name} ${oracle}`
  const known = await ctx.db
    .selectFrom("screenings")
    .select("address")
    .distinct()
    .where("address", "in", [...addresses])
    .where("source", "=", source)
    .where("listed", "=", false)
    .where("screened_at", ">", new Date(ctx.now().getTime() - CLEAR_MS))
    .execute()
  const clear = new Set(known.map(row => row.address))
  const asked = addresses.filter(address => !clear.has(address))
  const fresh = new Map<Address, Screening>()
  for (let start = 0; start < asked.length; start += READS_PER_CALL) {
    const part = asked.slice(start, start + READS_PER_CALL)
    const answers = await isSanctioned(ctx, network, oracle, part)
    part.forEach((address, i) => void fresh.set(address, answers[i] ?? "unknown"))
  }
  await keep(ctx, fresh, source, subject)
  return new Map([...addresses.map(address => [address, "clear"] as const), ...fresh])
}

/**
 * Asks the oracle. An address counts as listed or clear if two endpoints report that, or if the only endpoint does. A
 * single lying endpoint can neither get anybody paid nor stop anybody's payouts. If too few respond, or the votes are
 * equal, the address is unknown. An endpoint that contradicts the others is recorded; if two contradict each other,
 * both are.
 */
async function isSanctioned(
  ctx: Context,
  network: Network,
  oracle: Address,
  addresses: readonly Address[],
): Promise<Screening[]> {
  const { signal } = ctx
  const functionName = "isSanctioned"
  const reads = addresses.map(address => ({
    to: oracle,
    data: encodeFunctionData({ abi: oracleAbi, functionName, args: [address] }),
  }))
  const needed = Math.min(2, network.endpoints.length)
  const ready = awake(network.endpoints)
  const asked = ready.length < needed ? network.endpoints : ready
  const answers = (await askAgreed(asked, [multicall(reads)], { needed }, signal)).map(screenedBy)
  const apparent = new Set<number>()
  const decisions = addresses.map((_, i): Screening => {
    const { listed = [], clear = [] } = Object.groupBy(asked, (_, n) => answers[n]?.[i] ?? "unknown")
    const lone = listed.length === clear.length ? [...listed, ...clear] : listed.length < clear.length ? listed : clear
    if (listed.length > 0 && clear.length > 0) for (const each of lone) apparent.add(network.endpoints.indexOf(each))
    if (listed.length >= needed && listed.length > clear.length) return "listed"
    return clear.length >= needed && clear.length > listed.length ? "clear" : "unknown"
  })
  await noteDissent(ctx, network, { proven: new Set(), apparent })
  return decisions

  function screenedBy(results: RpcResult[] | undefined): Screening[] {
    const result = results?.[0]
    if (!result?.ok) return []
    try {
      return readMulticall(result.value).map(data => {
        if (data === undefined) return "unknown"
        return decodeFunctionResult({ abi: oracleAbi, functionName, data }) ? "listed" : "clear"
      })
    } catch {
      // An answer that can't be decoded is not the oracle's, so it decides nothing.
      return []
    }
  }
}

async function keep(ctx: Context, decisions: Map<Address, Screening>, source: string, subject: string): Promise<void> {
  const rows = [...decisions].flatMap(([address, decision]) =>
    decision === "unknown" ? [] : [{ address, listed: decision === "listed", source, subject, screened_at: ctx.now() }],
  )
  if (rows.length > 0) await ctx.db.insertInto("screenings").values(rows).execute()
}
