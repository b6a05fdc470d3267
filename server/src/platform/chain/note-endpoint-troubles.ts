/**
 * Records endpoints that a person should check. These troubles are stored in the database, because the process that
 * answers `/readyz` may not be the one that reads the chain. An endpoint is identified by its position in
 * `RPC_<NETWORK>`, because its address may contain a key.
 */
import type { Context, TxContext } from "../context.ts"
import { endpointAlarmReasons, endpointAlarms } from "../metrics.ts"
import type { Dissent } from "./agreement.ts"
import type { NetworkInfo } from "./network-facts.ts"
import type { Network, ReachableChain } from "./networks.ts"
import type { Quorum } from "./quorum.ts"

type Kind = (typeof endpointAlarmReasons)[number]

/**
 * A trouble must last this long to raise an alarm: at first, lag, a restart and a reorg's first seconds look the same.
 */
const LASTING_MS = 30_000
/**
 * Troubles of these kinds end only after none was seen for this long, because a lying endpoint does not lie in every
 * round.
 */
const LASTING: readonly Kind[] = ["contradiction", "useless"]
const QUIET_MS = 600_000

/**
 * `silent`: no response, or one for another chain. `behind`: far below the others' head. `contradiction`: it reports
 * another chain or other content. `logs`: it reports no log, even for the smallest request. `slow`: rounds do not wait
 * for it. `useless`: it floods, or its answers only fill memory.
 */
const words: Record<Kind, string> = {
  silent: "does not answer",
  behind: "is behind the others",
  contradiction: "contradicts the others",
  logs: "refuses eth_getLogs",
  slow: "answers much later than the others, so reads don't wait for it",
  useless: "sends useless answers, so it is queried less often",
}

/**
 * Returns a sentence about an endpoint, by its position from 0 among `count`, because its address may contain a key.
 */
export const endpointMessage = (count: number, position: number, what: string): string =>
  `RPC endpoint ${position + 1} of ${count} ${what}`

const wordsOf = (
  { endpoints }: Pick<NetworkInfo, "endpoints">,
  { position, kind }: Pick<Trouble, "position" | "kind">,
): string => endpointMessage(endpoints.length, position, words[kind])

const troubleMessage = (
  network: Pick<NetworkInfo, "endpoints">,
  { answer, ...trouble }: Pick<Trouble, "position" | "kind" | "answer">,
): string => wordsOf(network, trouble) + (answer ? `: ${answer}` : "")

interface Trouble {
  position: number
  kind: Kind
  is_alarm: boolean
  /** In the endpoint's words. */
  answer: string | null
}

/** A row of `endpoint_troubles`. */
interface Known extends Trouble {
  since: Date
  last_at: Date
}

/** The observation of one endpoint, in a round or in a call outside a round. */
export interface Seen {
  position: number
  host: string
  kind: Kind
  /** Whether the trouble raises an alarm immediately; any other trouble must last first. */
  isPlain: boolean
  /** In the endpoint's words, for the log and the alarm. */
  answer?: string | undefined
}

/** Names only the endpoint's host, because the rest of its URL may be a key. */
const placeOf = ({ endpoints }: ReachableChain, position: number): Pick<Seen, "position" | "host"> => ({
  position,
  host: new URL(endpoints[position]?.url ?? "http://unknown").hostname,
})

const contradictionsIn = (chain: ReachableChain, { proven, apparent }: Dissent): Seen[] =>
  [...new Set([...proven, ...apparent])].map(position => ({
    ...placeOf(chain, position),
    kind: "contradiction",
    isPlain: proven.has(position),
  }))

const knownTroubles = (ctx: TxContext, { chainId }: Pick<NetworkInfo, "chainId">): Promise<Known[]> =>
  ctx.db.selectFrom("endpoint_troubles").selectAll().where("chain_id", "=", chainId).execute()

/**
 * Records endpoints that contradicted the others in calls about payouts, outside the scan. The record ends no alarm,
 * because the scan ends a contradiction that was not seen for ten minutes.
 */
export async function noteDissent(ctx: Context, chain: ReachableChain, dissent: Dissent): Promise<void> {
  const seen = contradictionsIn(chain, dissent)
  if (seen.length > 0) await noteSeen(ctx, chain, seen, await knownTroubles(ctx, chain))
}

/** Returns the round's observations of a network's endpoints. */
export async function troublesIn(network: Network, quorum: Quorum): Promise<Seen[]> {
  const at = (position: number) => placeOf(network, position)
  return [
    ...quorum.slow().map(position => ({ ...at(position), kind: "slow" as const, isPlain: false })),
    ...quorum.weed().map(position => ({ ...at(position), kind: "useless" as const, isPlain: true })),
    ...quorum.silent.map(position => ({
      ...at(position),
      kind: "silent" as const,
      isPlain: false,
      answer: network.endpoints[position]?.said,
    })),
    ...quorum.behind.map(position => ({ ...at(position), kind: "behind" as const, isPlain: false })),
    ...contradictionsIn(network, await quorum.dissent()),
    // This raises an alarm immediately. The endpoint answers everything else, so nothing else shows that payments are
    // missed.
    ...[...quorum.refusals()].map(([position, answer]) => ({
      ...at(position),
      kind: "logs" as const,
      isPlain: true,
      answer,
    })),
  ]
}

/** Records a round's observations of a network's endpoints. Call it inside the transaction that records the round. */
export async function noteTroubles(ctx: TxContext, network: NetworkInfo, seen: readonly Seen[]): Promise<void> {
  const now = ctx.now()
  const known = await knownTroubles(ctx, network)
  const standing = await noteSeen(ctx, network, seen, known)
  const rest = known.filter(row => !seen.some(each => each.position === row.position && each.kind === row.kind))
  const isOver = (row: Known) => !LASTING.includes(row.kind) || now.getTime() - row.last_at.getTime() >= QUIET_MS
  for (const row of rest.filter(isOver)) await endTrouble(ctx, network, row)
  standing.push(...rest.filter(row => !isOver(row)))
  for (let position = 0; position < network.endpoints.length; position++)
    for (const kind of endpointAlarmReasons)
      endpointAlarms.set(
        { network: network.name, endpoint: `${position + 1}`, reason: kind },
        standing.some(each => each.is_alarm && each.position === position && each.kind === kind) ? 1 : 0,
      )
}

async function noteSeen(
  ctx: TxContext,
  network: Pick<NetworkInfo, "chainId" | "endpoints"> & Pick<ReachableChain, "name">,
  seen: readonly Seen[],
  known: readonly Known[],
): Promise<Trouble[]> {
  const now = ctx.now()
  const standing: Trouble[] = []
  for (const { position, host, kind, isPlain, answer = null } of seen) {
    const before = known.find(row => row.position === position && row.kind === kind)
    const since = before?.since ?? now
    const is_alarm = before?.is_alarm || isPlain || now.getTime() - since.getTime() >= LASTING_MS
    await ctx.db
      .insertInto("endpoint_troubles")
      .values({ chain_id: network.chainId, position, kind, since, last_at: now, is_alarm, answer })
      .onConflict(conflict =>
        conflict.columns(["chain_id", "position", "kind"]).doUpdateSet({ last_at: now, is_alarm, answer }),
      )
      .execute()
    standing.push({ position, kind, is_alarm, answer })
    if (!is_alarm || before?.is_alarm) continue
    const said = answer === null ? {} : { answer }
    ctx.log.error({ network: network.name, host, reason: kind, ...said }, wordsOf(network, { position, kind }))
  }
  return standing
}

async function endTrouble(ctx: TxContext, network: NetworkInfo, { position, kind, is_alarm }: Trouble): Promise<void> {
  await ctx.db
    .deleteFrom("endpoint_troubles")
    .where("chain_id", "=", network.chainId)
    .where("position", "=", position)
    .where("kind", "=", kind)
    .execute()
  if (is_alarm)
    ctx.log.info({ network: network.name, reason: kind }, `no longer so: ${wordsOf(network, { position, kind })}`)
}

/** Returns the problems of endpoints that a person should check, in words that anyone may read: without addresses. */
export async function troubleMessages(ctx: Context): Promise<string[]> {
  const rows = await ctx.db
    .selectFrom("endpoint_troubles")
    .selectAll()
    .where("is_alarm", "=", true)
    .orderBy("position")
    .orderBy("kind")
    .execute()
  return ctx.chain.networks.flatMap(network =>
    rows
      .filter(row => row.chain_id === network.chainId && row.position < network.endpoints.length)
      .map(row => `${network.name}: ${troubleMessage(network, row)}`),
  )
}
