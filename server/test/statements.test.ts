// How many statements each route that payers and merchants wait for sends to the database, and that none of them is
// parsed again. One more is a decision: count it here, with its reason.
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type OpenDatabase, openPostgres } from "../src/platform/db/open.ts"
import { openReplica } from "../src/platform/db/open-replica.ts"
import { openLog } from "../src/platform/log.ts"
import { until } from "./e2e/program.ts"
import { startPayoutRig } from "./payouts.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "./postgres.ts"
import { relaysOn } from "./relays.ts"
import { startService, type TestService } from "./service.ts"
import { type Executed, openStatementDoor, type StatementDoor } from "./statements.ts"

let postgres: TestPostgres
let door: StatementDoor
let database: OpenDatabase
let service: TestService
let headers: { "x-api-key": string }

type Method = Parameters<TestService["call"]>[0]
let n = 0

/** One request; a hash or key in it is new each time. */
async function ask(method: Method, path: string, body?: unknown, more = {}) {
  const answer = await service.call(method, path, body, { headers: { ...headers, ...more } })
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
  return answer.body
}
const newHash = () => `0x${(++n).toString(16).padStart(64, "0")}`
const newCheckout = () => ask("POST", "/api/checkouts", { amount: "5" })

/** The statements of the last of several requests: until then connections are opened, and statements parsed on them. */
async function statementsOf(request: () => Promise<unknown>): Promise<string[]> {
  for (let warm = 0; warm < 8; warm++) await request()
  const statements = await door.during(request)
  expect(statements.filter(({ parsed }) => parsed).map(({ text }) => text)).toEqual([])
  return statements.map(({ text }) => /named: (\w+)/.exec(text)?.[1] ?? text)
}

describe.runIf(postgresBinaries())("the statements of a request", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
    door = await openStatementDoor(postgres.url)
    database = await openPostgres(door.url, () => {})
    service = await startService({ database })
    await service.merchant("shop")
    const { body } = await service.call("POST", "/api/console/api-keys", { name: "server" }, { as: "shop" })
    headers = { "x-api-key": body.key }
    await until("connections are known to be sessions", () => database.isListening())
  })
  afterAll(async () => {
    await service?.stop()
    await door?.stop()
    await postgres?.stop()
  })

  it("GET /api/pay/status/:id: one, and a write at most each half hour", async () => {
    const { id } = await newCheckout()
    const status = () => ask("GET", `/api/pay/status/${id}`)
    expect(await statementsOf(status)).toEqual(["session_states"])
    for (const [minutes, writes] of [
      [29, 0],
      [2, 1],
      [29, 0],
      [2, 1],
    ] as const) {
      service.advance(minutes * 60_000)
      expect((await door.during(status)).length).toBe(1 + writes)
      expect((await door.during(status)).length).toBe(1)
    }
    // A hash that is asked for is the same statement.
    await ask("POST", "/api/pay/confirm", { sessionId: id, txHash: newHash() })
    expect(await statementsOf(() => ask("GET", `/api/pay/status/${id}?txHash=${newHash()}`))).toEqual([
      "session_states",
    ])
  })

  it("GET /api/pay/status/:id of a session that never was: one", async () => {
    const unknown = async () => {
      const { status } = await service.call("GET", "/api/pay/status/cs_000000000000000000000000")
      expect(status).toBe(404)
    }
    expect(await statementsOf(unknown)).toEqual(["session_states"])
  })

  it("POST /api/checkouts: three", async () => {
    expect(await statementsOf(newCheckout)).toEqual(["keys_by_hash", "offers", "write_sessions"])
  })

  it("POST /api/checkouts with an Idempotency-Key: three, and five for the answer again", async () => {
    let key = ""
    const again = () => ask("POST", "/api/checkouts", { amount: "5" }, { "idempotency-key": key })
    const first = () => {
      key = `key-${++n}`
      return again()
    }
    const asked = ["keys_by_hash", "offers", "write_sessions_once"]
    expect(await statementsOf(first)).toEqual(asked)
    expect(await statementsOf(again)).toEqual([...asked, "reserve_key", "kept_answers"])
  })

  it("GET /api/checkouts/:id: two", async () => {
    const { id } = await newCheckout()
    expect(await statementsOf(() => ask("GET", `/api/checkouts/${id}`))).toEqual(["keys_by_hash", "own_sessions"])
  })

  it("POST /api/pay/sessions: two", async () => {
    const link = { title: "Book", amount: "5", slug: "book" }
    await service.call("POST", "/api/console/payment-links", link, { as: "shop" })
    expect(await statementsOf(() => ask("POST", "/api/pay/sessions", { slug: "book" }))).toEqual([
      "offers",
      "write_sessions",
    ])
  })

  it("POST /api/pay/confirm: four", async () => {
    const ids: string[] = []
    for (let made = 0; made < 9; made++) ids.push((await newCheckout()).id)
    const confirm = () => ask("POST", "/api/pay/confirm", { sessionId: ids.pop(), txHash: newHash() })
    for (const id of ids) await ask("GET", `/api/pay/status/${id}`)
    expect(await statementsOf(confirm)).toEqual(["lock_paid_session", "submit_hash", "verify_soon", "notify"])
  })

  it("POST /api/paywalls/:id/pay: four", async () => {
    const film = { name: "Film", price: 5 }
    const { id } = (await service.call("POST", "/api/console/paywalls", film, { as: "shop" })).body
    await ask("GET", `/api/paywalls/${id}`)
    const address = `0x${"12".repeat(20)}`
    const pay = () => ask("POST", `/api/paywalls/${id}/pay`, { txHash: newHash(), address })
    expect(await statementsOf(pay)).toEqual(["paid_paywalls", "submit_payment", "verify_soon", "notify"])
  })

  it("the page /pay/:id: two, and each of its later states too", async () => {
    const { id } = await newCheckout()
    const page = () => ask("GET", `/pay/${id}`)
    expect(await statementsOf(page)).toEqual(["session_states", "checkout_facts"])
    expect(await statementsOf(() => ask("GET", `/pay/${id}/status`))).toEqual(["session_states", "checkout_facts"])
  })
})

describe.runIf(postgresBinaries())("the statements of a payment that the service relays", () => {
  it("POST /api/pay/authorize: ten, without budgets and a source of sanctions", async () => {
    const postgres = await startPostgres()
    const door = await openStatementDoor(postgres.url)
    const database = await openPostgres(door.url, () => {})
    const rig = await startPayoutRig({}, database)
    try {
      await until("connections are known to be sessions", () => database.isListening())
      const on = relaysOn(rig)
      await on.begin()
      const signed: (() => Promise<unknown>)[] = []
      for (let made = 0; made < 9; made++) {
        const session = await on.start()
        const authorization = await on.sign(await on.buyer(), session)
        await on.status(session.id)
        signed.push(async () => expect((await on.submit(session, authorization)).status).toBe(200))
      }
      for (const submit of signed.slice(1)) await submit()
      const statements = await door.during(async () => await signed[0]?.())
      expect(statements.map(({ text }) => /named: (\w+)/.exec(text)?.[1] ?? text.trim().split("\n")[0])).toEqual([
        // Before the chain is asked, so that a request that is refused anyway costs no endpoint anything.
        "authorizable_sessions",
        "failing_payers",
        "active_relayers",
        // With what the endpoints say: whether the address holds money that the rows don't know. Its plan depends on how
        // many addresses are asked for, so it has no name.
        "select d.id, coalesce(i.sum, 0)::numeric(78,0) as came,",
        // A statement that waits for a lock sees what was there before it, so the rest is read again after it.
        "lock_session",
        "authorizable_sessions",
        "failing_payers",
        "write_relays",
        "verifying_session",
        // Wakes the relay wallet.
        "notify",
      ])
      expect(statements.filter(({ parsed }) => parsed).length).toBe(1)
    } finally {
      await rig.stop()
      await door.stop()
      await postgres.stop()
    }
  })
})

describe.runIf(postgresBinaries())("the statements of a request where a replica reads", () => {
  it("GET /api/pay/status/:id: one there, and one about the position of the primary", async () => {
    const primary = await startPostgres({ durable: true })
    const standby = await startPostgres({ durable: true, replicaOf: primary })
    const doors = [await openStatementDoor(primary.url), await openStatementDoor(standby.url)] as const
    const database = await openPostgres(doors[0].url, () => {})
    const replica = openReplica({ url: doors[1].url, maxLagMs: 60_000 }, database.db, openLog("silent"))
    const service = await startService({ database, replica })
    try {
      await until("the replica is used", () => replica.trouble() === undefined)
      await service.merchant("shop")
      const { body } = await service.call("POST", "/api/console/checkouts", { amount: "5" }, { as: "shop" })
      const status = async () => expect((await service.call("GET", `/api/pay/status/${body.id}`)).status).toBe(200)
      for (let warm = 0; warm < 4; warm++) await status()
      let ofReplica: Executed[] = []
      const ofPrimary = await doors[0].during(async () => {
        ofReplica = await doors[1].during(status)
      })
      // Both are also asked twice a second for their positions, whether anybody reads or not.
      const isPosition = ({ text }: Executed) => text.includes("pg_control_system()")
      expect(ofPrimary.length).toBeGreaterThan(0)
      expect(ofPrimary.filter(each => !isPosition(each))).toEqual([])
      expect(ofReplica.filter(each => !isPosition(each)).map(({ text }) => /named: (\w+)/.exec(text)?.[1])).toEqual([
        "session_states",
      ])
    } finally {
      await service.stop()
      for (const each of [...doors, standby, primary]) await each.stop()
    }
  })
})
