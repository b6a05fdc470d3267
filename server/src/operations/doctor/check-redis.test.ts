// The doctor's findings about a Redis: it is in order exactly when the limits can be shared through it.
import { readFileSync } from "node:fs"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { onRedis, startRedis, type TestRedis } from "../../../test/redis.ts"
import { startCluster, type TestRedisGroup } from "../../../test/redis-groups.ts"
import { examineSettings } from "../../platform/config/read-settings.ts"
import { checkRedis, REDIS_RIGHTS } from "./check-redis.ts"

const { settings } = examineSettings({})
const found = async (redisUrl: string): Promise<string[]> =>
  (await checkRedis({ ...settings, redisUrl })).map(each => `${each.level}: ${each.message}. ${each.todo ?? ""}`)

const fine = ["ok: Redis answers, and processes can share the limits through it. "]

/** Creates a user with these rights; returns the address with its login. */
async function withUser(servers: readonly TestRedis[], url: string, rights: string): Promise<string> {
  for (const { client } of servers)
    await client.call("ACL", "SETUSER", "sluice", "reset", "on", ">hunter2", ...rights.split(" "))
  return url.replace("//", "//sluice:hunter2@")
}

it("says that a Redis that is down can't be reached", async () => {
  expect(await found("redis://127.0.0.1:1")).toEqual([expect.stringMatching(/^alarm: Redis can't be reached/)])
})

it("reads the same rights in the docs", () => {
  expect(readFileSync("docs/operators/operations.md", "utf8")).toContain(
    `ACL SETUSER sluice on >PASSWORD ${REDIS_RIGHTS}`,
  )
})

describe.runIf(onRedis)("the check of a Redis", () => {
  let server: TestRedis
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server.stop())

  it("finds nothing, for a user with the rights that it names, and leaves nothing there", async () => {
    expect(await found(server.url)).toEqual(fine)
    expect(await found(`${server.url}/15`)).toEqual(fine)
    expect(await found(await withUser([server], server.url, REDIS_RIGHTS))).toEqual(fine)
    await server.client.script("FLUSH")
    expect(await found(await withUser([server], server.url, REDIS_RIGHTS))).toEqual(fine)
    expect(await server.client.info("keyspace")).not.toContain("db")
  })

  it("finds each right that is missing, and names all", async () => {
    const rights = REDIS_RIGHTS.split(" ")
    for (const right of rights) {
      const others = rights.filter(each => each !== right).join(" ")
      const url = await withUser([server], server.url, others)
      expect(await found(url), right).toEqual([
        expect.stringMatching(
          /^alarm: the user of REDIS_URL has too few rights in Redis\. Grant the missing rights: ACL SETUSER/,
        ),
      ])
    }
  })

  it.each<[string, Record<string, string>, RegExp]>([
    ["that is full", { maxmemory: "1" }, /^alarm: Redis is full\. Give Redis more memory/],
    [
      "that drops keys when it is full",
      { maxmemory: "100mb", "maxmemory-policy": "volatile-ttl" },
      /^note: Redis drops keys when it is full \(volatile-ttl\).* Set maxmemory-policy noeviction/,
    ],
    ["that lacks its replicas", { "min-replicas-to-write": "1" }, /^alarm: Redis refuses .* answered: NOREPLICAS/],
  ])("finds one %s", async (_what, values, words) => {
    const set = async (name: string, value: string) => await server.client.config("SET", name, value)
    for (const [name, value] of Object.entries(values)) await set(name, value)
    expect(await found(server.url)).toEqual([expect.stringMatching(words)])
    for (const name of Object.keys(values)) await set(name, name === "maxmemory-policy" ? "noeviction" : "0")
  })

  it("finds one that is a replica", async () => {
    await server.client.replicaof("127.0.0.1", 1)
    expect(await found(server.url)).toEqual([expect.stringMatching(/^alarm: REDIS_URL leads to a replica/)])
    await server.client.replicaof("NO", "ONE")
  })

  it("finds a wrong password, and repeats none", async () => {
    const url = await withUser([server], server.url, REDIS_RIGHTS)
    const [text] = await found(url.replace("hunter2", "hunter3"))
    expect(text).toMatch(/^alarm: Redis refuses the login\. .* answered: WRONGPASS/)
    expect(text).not.toContain("hunter")
  })

  it("finds a database that it lacks, or that the user may not take", async () => {
    expect(await found(`${server.url}/9999`)).toEqual([
      expect.stringMatching(
        /^fault: REDIS_URL names database 9999, and Redis .*out of range\)\. REDIS_URL: name a database/,
      ),
    ])
    const url = `${await withUser([server], server.url, REDIS_RIGHTS)}/3`
    expect(await found(url)).toEqual([expect.stringMatching(/^fault: REDIS_URL names database 3, .* \+select/)])
    await withUser([server], server.url, `${REDIS_RIGHTS} +select`)
    expect(await found(url)).toEqual(fine)
  })
})

describe.runIf(onRedis)("the check of a Cluster", () => {
  let group: TestRedisGroup
  beforeAll(async () => {
    group = await startCluster()
  })
  afterAll(() => group.stop())

  it("finds what is wrong with any primary, and a Cluster that is named as one server", async () => {
    const rights = `${REDIS_RIGHTS} +cluster|slots +cluster|info`
    const url = await withUser(group.servers, group.url, rights)
    expect(await found(url)).toEqual(fine)
    const [, , third] = group.servers as [TestRedis, TestRedis, TestRedis]
    await withUser([third], "", rights.replace("+ltrim ", ""))
    expect(await found(url)).toEqual([expect.stringMatching(/^alarm: the user of REDIS_URL has too few rights/)])
    expect(await found(third.url)).toEqual([expect.stringMatching(/^alarm: Redis is a Cluster\. .*redis\+cluster:/)])
  })
})
