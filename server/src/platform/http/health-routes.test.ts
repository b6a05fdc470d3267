// What /readyz says of faults around the process, each made for real.
import { sql } from "kysely"
import { pino } from "pino"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { canMount, postgresBinaries, startPostgres, type TestPostgres } from "../../../test/postgres.ts"
import { onRedis, startRedis } from "../../../test/redis.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { checkDatabase } from "../../operations/doctor/check-database.ts"
import { openPostgres } from "../db/open.ts"
import { openLimits } from "../limits/limiter.ts"

const alarmsOf = async (service: TestService): Promise<[number, string[]]> => {
  const { status, body } = await service.call("GET", "/readyz")
  return [status, body.alarms]
}

// Where nothing can be mounted or there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries() && canMount())("a database whose disk is full", () => {
  let postgres: TestPostgres
  let service: TestService
  beforeAll(async () => {
    postgres = await startPostgres({ diskMb: 400 })
    service = await startService({ database: await openPostgres(postgres.url, () => {}) })
    await service.merchant("shop")
    await service.ctx.db.insertInto("installation").values({ key: "mode", value: "sandbox" }).execute()
  })
  afterAll(async () => {
    await service.stop()
    await postgres.stop()
  })

  it("is an alarm of /readyz and of the checks until there is room again, and reads are served meanwhile", async () => {
    const words = "the disk of the database is full, so nothing can be recorded"
    const query = async (text: string) => (await sql.raw<Record<string, unknown>>(text).execute(service.ctx.db)).rows
    const findings = async () => await checkDatabase(service.ctx.settings, query, () => new Date())
    postgres.fill()
    const [status, alarms] = await alarmsOf(service)
    expect([status, alarms.includes(words)]).toEqual([200, true])
    expect(await findings()).toContainEqual(
      expect.objectContaining({ check: "writes", level: "fault", message: words }),
    )
    expect((await service.call("GET", "/api/console/settings", undefined, { as: "shop" })).status).toBe(200)
    postgres.makeRoom()
    await until("the alarm ends", async () => !(await alarmsOf(service))[1].includes(words))
    expect((await findings()).find(({ check }) => check === "writes")).toMatchObject({ level: "ok" })
  })
})

describe.runIf(onRedis)("a Redis that is lost", () => {
  it("is an alarm until it is back", async () => {
    const redis = await startRedis()
    const log = pino({ level: "silent" })
    const limits = await openLimits({ redisUrl: redis.url, installation: "tested" }, log, 2_000)
    const service = await startService({ limits })
    const words = "Redis can't be used, so each process enforces its share of the rate limits on its own"
    const isNamed = async () => (await alarmsOf(service))[1].includes(words)
    try {
      expect(await isNamed()).toBe(false)
      await redis.kill()
      await until("it is named", isNamed)
      await redis.restart()
      await until("it is no longer named", async () => !(await isNamed()))
    } finally {
      await service.stop()
      await redis.stop()
    }
  })
})
