/** Several Redis servers of a test's own that replace one of them when it is lost: watched by sentinels, or as a cluster. */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Redis } from "ioredis"
import { freePort, until } from "./e2e/program.ts"
import { redisBinary, startRedis, type TestRedis } from "./redis.ts"

export interface TestRedisGroup {
  /** As `REDIS_URL`. */
  url: string
  servers: TestRedis[]
  /** The server that takes writes of this key now. */
  primaryOf(key: string): Promise<TestRedis>
  stop(): Promise<void>
}

const NAME = "limits"
/** The sentinels, and the primaries of a cluster, that must agree that a primary is lost: two of three. */
const QUORUM = 2
/** Time enough for a busy machine to answer. */
const DOWN_MS = 1_500

/** A primary, its replica, and three sentinels. */
export async function startSentinels(): Promise<TestRedisGroup> {
  const primary = await startRedis()
  const replica = await startRedis({ replicaof: `127.0.0.1 ${primary.port}` })
  const servers = [primary, replica]
  await until("the replica follows", async () =>
    (await replica.client.info("replication")).includes("master_link_status:up"),
  )
  const dir = mkdtempSync(join(tmpdir(), "sluice-sentinels-"))
  const ports = [await freePort(), await freePort(), await freePort()]
  const sentinels = ports.map(port => startSentinel(dir, port, primary.port))
  const clients = ports.map(port => new Redis(port, "127.0.0.1", { retryStrategy: () => 50 }))
  for (const client of clients) client.on("error", () => {})
  for (const client of clients)
    await until("the sentinels know each other and the replica", async () => {
      const found = await client.call("sentinel", "master", NAME).catch(() => [])
      const fields = found as string[]
      const of = (name: string) => fields[fields.indexOf(name) + 1]
      return of("num-other-sentinels") === "2" && of("num-slaves") === "1"
    })
  return {
    url: `redis+sentinel://${ports.map(port => `127.0.0.1:${port}`).join(",")}/${NAME}`,
    servers,
    primaryOf: async () => {
      const found = (await clients[0]?.call("sentinel", "get-master-addr-by-name", NAME)) as string[]
      return serverAt(servers, Number(found[1]))
    },
    stop: async () => {
      for (const client of clients) client.disconnect()
      for (const sentinel of sentinels) await ended(sentinel)
      await Promise.all(servers.map(server => server.stop()))
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

/** A sentinel writes what it learns into its configuration. */
function startSentinel(dir: string, port: number, primaryPort: number): ChildProcess {
  const file = join(dir, `${port}.conf`)
  const lines = [
    `port ${port}`,
    "bind 127.0.0.1",
    `dir ${dir}`,
    `sentinel monitor ${NAME} 127.0.0.1 ${primaryPort} ${QUORUM}`,
    `sentinel down-after-milliseconds ${NAME} ${DOWN_MS}`,
    `sentinel failover-timeout ${NAME} 5000`,
  ]
  writeFileSync(file, `${lines.join("\n")}\n`)
  return spawn(redisBinary() ?? "", [file, "--sentinel"], { stdio: "ignore" })
}

/** Three primaries, and one replica, which replaces the first. */
export async function startCluster(): Promise<TestRedisGroup> {
  const dir = mkdtempSync(join(tmpdir(), "sluice-cluster-"))
  const servers: TestRedis[] = []
  for (let i = 0; i < 4; i++)
    servers.push(
      await startRedis({
        "cluster-enabled": "yes",
        "cluster-config-file": join(dir, `${i}.conf`),
        "cluster-port": await freePort(),
        "cluster-node-timeout": DOWN_MS,
        // It was a replica for a moment only.
        "cluster-replica-validity-factor": 0,
      }),
    )
  const [first, second, third, replica] = servers as [TestRedis, TestRedis, TestRedis, TestRedis]
  const ranges = [
    [first, 0, 5_460],
    [second, 5_461, 10_922],
    [third, 10_923, 16_383],
  ] as const
  for (const [server, from, to] of ranges) await server.client.call("cluster", "addslotsrange", from, to)
  for (const server of [second, third, replica]) {
    const bus = Number(((await server.client.config("GET", "cluster-port")) as string[])[1])
    await first.client.call("cluster", "meet", "127.0.0.1", server.port, bus)
  }
  const id = String(await first.client.call("cluster", "myid"))
  await until("the replica knows the first", async () => String(await replica.client.cluster("NODES")).includes(id))
  await replica.client.call("cluster", "replicate", id)
  for (const { client } of servers)
    await until("the cluster is complete", async () => {
      const info = String(await client.cluster("INFO"))
      return /cluster_state:ok/.test(info) && /cluster_known_nodes:4/.test(info)
    })
  await until("the replica follows", async () =>
    (await replica.client.info("replication")).includes("master_link_status:up"),
  )
  return {
    url: `redis+cluster://${servers.map(({ port }) => `127.0.0.1:${port}`).join(",")}`,
    servers,
    primaryOf: async key => {
      const slot = Number(await third.client.cluster("KEYSLOT", key))
      const found = (await third.client.cluster("SLOTS")) as unknown as [number, number, [string, number]][]
      return serverAt(servers, found.find(([from, to]) => from <= slot && slot <= to)?.[2][1] ?? 0)
    },
    stop: async () => {
      await Promise.all(servers.map(server => server.stop()))
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

function serverAt(servers: TestRedis[], port: number): TestRedis {
  const server = servers.find(each => each.port === port)
  if (!server) throw new Error(`no server listens on ${port}`)
  return server
}

async function ended(child: ChildProcess): Promise<void> {
  const end = new Promise(resolve => child.once("exit", resolve))
  child.kill("SIGKILL")
  await end
}
