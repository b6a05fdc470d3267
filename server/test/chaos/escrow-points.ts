/**
 * The moments at which processes are ended in the chaos of escrows, and how a process notices them: in its signer and in its database
 * driver. The product knows nothing of it. Each moment is named by what happens and of which call: `within row capture` is after
 * the row of a capture was written and before that is committed.
 */
import type pg from "pg"
import { type Hex, parseTransaction, toFunctionSelector } from "viem"
import { authCaptureEscrowAbi as abi } from "../../src/platform/chain/abi.ts"
import { watchQueries } from "./watch-queries.ts"

/** The calls of an escrow. */
const kinds = ["reserve", "capture", "void", "refund"] as const
type Kind = (typeof kinds)[number]

const ofEach = (...names: string[]) => kinds.flatMap(kind => names.map(name => `${name} ${kind}`))
const events = ["checkout.authorized", "checkout.session.completed", "checkout.voided", "payment.refunded"]

/** In an API process: a call is asked for, its row is written, and committed. */
export const apiPoints = ofEach("before row", "within row", "after row")

/**
 * In a worker: a call gets its nonce and an unsigned attempt, and its signature; is found mined or final; counted, with its event; made by
 * itself; displaced.
 */
export const workerPoints = [
  ...ofEach("before attempt", "within attempt", "after attempt"),
  ...ofEach("before signature", "within signature", "after signature"),
  ...ofEach("before mined", "after mined", "before final", "within counted", "after counted"),
  ...events.map(type => `within event ${type}`),
  "within event checkout.session.reversed",
  ...["capture", "void"].map(kind => `within own ${kind}`),
  "before displaced",
  "after displaced",
]

/** Noticed by the endpoints: just before, and just after, what a worker sends reaches the chain. */
export const sendPoints = ofEach("before send", "after send")

const functions = { reserve: "authorize", capture: "capture", void: "void", refund: "refund" }
const selectors = new Map(
  kinds.map(kind => {
    const call = abi.find(each => each.type === "function" && each.name === functions[kind])
    if (call?.type !== "function") throw new Error(`no function for ${kind}`)
    return [toFunctionSelector(call), kind]
  }),
)

/** Which call of an escrow this calldata is. */
const kindOfCall = (data: Hex = "0x"): Kind | undefined => selectors.get(data.slice(0, 10) as Hex)

/** The same of signed bytes. */
export const kindOfRaw = (raw: Hex): Kind | undefined => kindOfCall(parseTransaction(raw).data)

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** The rows that a statement is given as one value. */
export function givenTo(
  values: readonly unknown[],
): { id: string; state?: string; kind?: string; type?: string; raw?: Hex }[] {
  const json = values.find(value => typeof value === "string" && value.startsWith("[{"))
  return json === undefined ? [] : JSON.parse(String(json))
}

/** What a statement does, as points name it; `kindOf` knows payouts that were read. */
function namesOf(
  role: "api" | "worker",
  text: string,
  values: readonly unknown[],
  kindOf: (id: unknown) => Kind | undefined,
) {
  const kind = () => values.find(value => kinds.includes(value as Kind))
  const idsOf = (isMeant: (i: number) => boolean) =>
    values.flatMap((value, i) => (UUID.test(String(value)) && isMeant(i) ? (kindOf(value) ?? []) : []))
  const by = role === "api" ? "row" : "own"
  if (/^insert into "payouts"/.test(text)) return [`${by} ${kind()}`]
  if (text.includes("/* named: write_relays */")) return givenTo(values).map(row => `${by} ${row.kind}`)
  if (text.includes("/* named: give_nonces */"))
    return givenTo(values).flatMap(({ id }) => {
      const kind = kindOf(id)
      return kind ? [`attempt ${kind}`] : []
    })
  if (text.includes("/* named: store_signatures */"))
    return givenTo(values).flatMap(({ raw }) => {
      const kind = raw && kindOfRaw(raw)
      return kind ? [`signature ${kind}`] : []
    })
  if (text.includes("update payouts i set state = s.state"))
    return givenTo(values).flatMap(({ id, state }) => {
      const kind = state === "mined" || state === "final" ? kindOf(id) : undefined
      return kind ? [`${state} ${kind}`] : []
    })
  if (/^update "payouts" set "state" = \$1, "tx_hash"/.test(text)) return ["displaced"]
  if (/^insert into "counted_calls"/.test(text)) return idsOf(() => true).map(each => `counted ${each}`)
  if (text.includes("/* named: emit"))
    return [...values, ...givenTo(values).map(({ type }) => type)].flatMap(each =>
      /^[a-z]+(\.[a-z]+)+$/.test(`${each}`) ? `event ${each}` : [],
    )
  return []
}

/** Watches all statements of this process, and calls `moment` with each point that is met. */
export function watchStatements(role: "api" | "worker", moment: (point: string) => void): void {
  const open = new WeakMap<pg.Client, Set<string>>()
  const known = new Map<unknown, Kind>()
  const learn = (rows: unknown) => {
    for (const row of Array.isArray(rows) ? rows : [])
      if (kinds.includes(row?.kind) && UUID.test(row.id)) known.set(row.id, row.kind)
  }
  watchQueries(async (client, { text, values, begins, commits }, send) => {
    const names = new Set(namesOf(role, text, values, id => known.get(id)))
    if (begins) open.set(client, new Set())
    if (text === "rollback") open.delete(client)
    for (const name of names) moment(`before ${name}`)
    const pending = open.get(client)
    const isCommit = commits && pending !== undefined
    // What is sent together with the commit is met here too.
    if (isCommit) for (const name of [...pending, ...names]) moment(`within ${name}`)
    const result = await send()
    learn(result.rows)
    const committed = isCommit ? [...pending, ...names] : pending ? [] : names
    if (!isCommit) for (const name of names) pending?.add(name)
    else open.delete(client)
    for (const name of committed) moment(`after ${name}`)
    return result
  })
}
