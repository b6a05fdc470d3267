/** Three API processes on one Redis: the limits hold for all together, also while it fails, and no caller sees an error. */
import { type ChildProcess, fork } from "node:child_process"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Settings } from "../../src/platform/config/settings.ts"
import { onRedis, startRedis, type TestRedis } from "../redis.ts"
import { noLimits } from "../service.ts"
import { root, until } from "./program.ts"

const LIMIT = 12
const SHARE = 4
const METRICS_TOKEN = "m-token"

describe.runIf(onRedis)("three processes on Redis", () => {
  let redis: TestRedis
  const children: ChildProcess[] = []
  let urls: string[] = []

  beforeAll(async () => {
    redis = await startRedis()
    const settings: Partial<Settings> = {
      redisUrl: redis.url,
      metricsToken: METRICS_TOKEN,
      // Each caller of this test is one behind a proxy.
      trustedProxies: ["127.0.0.1"],
      limits: { ...noLimits, paywallPay: LIMIT },
    }
    urls = await Promise.all(
      Array.from({ length: 3 }, () => {
        const child = fork(`${root}server/test/e2e/limited-api.ts`, [JSON.stringify(settings)], { execArgv: [] })
        children.push(child)
        return new Promise<string>((resolve, reject) => {
          child.once("message", url => resolve(String(url)))
          child.once("exit", code => reject(new Error(`it ended with ${code}`)))
        })
      }),
    )
  })
  afterAll(async () => {
    for (const child of children) child.disconnect()
    await redis.stop()
  })

  const metric = async (url: string, name: string): Promise<string | undefined> => {
    const response = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${METRICS_TOKEN}` } })
    return new RegExp(`^${name} (.*)$`, "m").exec(await response.text())?.[1]
  }
  const allHave = async (name: string, value: string): Promise<boolean> => {
    const values = await Promise.all(urls.map(url => metric(url, name)))
    return values.every(each => each === value)
  }

  /** Twenty requests of one caller to each process, all at once: how many each let through. Throws on any other answer. */
  const admitted = async (caller: string): Promise<number[]> =>
    await Promise.all(
      urls.map(async url => {
        const statuses = await Promise.all(
          Array.from({ length: 20 }, async () => {
            const headers = { "content-type": "application/json", "x-forwarded-for": caller }
            const response = await fetch(`${url}/api/paywalls/x/pay`, { method: "POST", body: "{}", headers })
            await response.text()
            return response.status
          }),
        )
        for (const status of statuses) expect([400, 429]).toContain(status)
        return statuses.filter(status => status !== 429).length
      }),
    )
  const sum = (values: number[]) => values.reduce((a, b) => a + b)

  it("admit exactly the limit together, and their share each while Redis fails", async () => {
    await until("each counts three", () => allHave("sluice_limits_instances", "3"))
    expect(sum(await admitted("192.0.2.1"))).toBe(LIMIT)
    expect(sum(await admitted("192.0.2.1"))).toBe(0)

    const failures = [
      { fail: redis.pause, mend: redis.resume },
      { fail: redis.kill, mend: redis.restart },
    ]
    for (const [i, { fail, mend }] of failures.entries()) {
      await fail()
      expect(await admitted(`192.0.2.${10 + i}`)).toEqual([SHARE, SHARE, SHARE])
      expect(sum(await admitted(`192.0.2.${10 + i}`))).toBe(0)
      expect(await allHave("sluice_limits_alone", "1")).toBe(true)
      await mend()
      await until("shared again", () => allHave("sluice_limits_alone", "0"))
      expect(sum(await admitted(`192.0.2.${20 + i}`))).toBe(LIMIT)
    }
  })
})
