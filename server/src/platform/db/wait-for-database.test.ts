import type { Logger } from "pino"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../../../test/postgres.ts"
import { waitForDatabase } from "./wait-for-database.ts"

const lines: string[] = []
const say = (level: string) => (fields: object | string, words?: string) =>
  void lines.push(`${level}: ${words ?? fields}`)
const log = { error: say("error"), info: say("info") } as unknown as Logger
const never = new AbortController().signal

let postgres: TestPostgres
// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("a start", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
  })
  afterAll(() => postgres?.stop())

  it("waits until Postgres is there, and says so once", async () => {
    await postgres.kill()
    const waiting = waitForDatabase(postgres.url, log, never)
    await until("it waits", () => lines.length > 0)
    await postgres.start()
    await waiting
    expect(lines).toEqual([
      "error: the database can't be reached: the start waits for it",
      "info: the database can be reached",
    ])
    await waitForDatabase(postgres.url, log, never)
    expect(lines).toHaveLength(2)
  })

  it("ends at once where waiting mends nothing, and when it is asked to stop", async () => {
    const url = Object.assign(new URL(postgres.url), { pathname: "/nowhere" }).href
    await expect(waitForDatabase(url, log, never)).rejects.toMatchObject({ code: "3D000" })
    await postgres.kill()
    const stopping = new AbortController()
    const waiting = waitForDatabase(postgres.url, log, stopping.signal)
    stopping.abort(new Error("stopped"))
    await expect(waiting).rejects.toThrow()
  })
})
