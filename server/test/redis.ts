/** A Redis server of the tests' own: on loopback, keeping nothing, ended with the process that started it. */
import { type ChildProcess, spawn } from "node:child_process"
import { accessSync, constants } from "node:fs"
import { delimiter, join } from "node:path"
import { Redis } from "ioredis"
import { freePort, until } from "./e2e/program.ts"

/** Where the installed server is, or undefined. */
export function redisBinary(): string | undefined {
  const paths = (process.env.PATH ?? "").split(delimiter).map(dir => join(dir, "redis-server"))
  return paths.find(path => {
    try {
      accessSync(path, constants.X_OK)
      return true
    } catch {
      return false
    }
  })
}

/** Whether to run what needs Redis: where it is installed, and under CI, where a part that is missing is a failure. */
export const onRedis = redisBinary() !== undefined || process.env.CI !== undefined

export interface TestRedis {
  url: string
  port: number
  /** A connection for reading and clearing, open as long as the server. */
  client: Redis
  /** Pauses it: connections stay open and nothing is answered. */
  pause(): void
  resume(): void
  /** Ends it at once; its data is lost. */
  kill(): Promise<void>
  /** Starts it again at the same address, empty. */
  restart(): Promise<void>
  stop(): Promise<void>
}

/** Starts a server with these settings; throws when none is installed. */
export async function startRedis(more: Record<string, string | number> = {}): Promise<TestRedis> {
  const binary = redisBinary()
  if (!binary) throw new Error("no Redis server is installed: apt-get install redis-server")
  const port = await freePort()
  const url = `redis://127.0.0.1:${port}`
  let server: ChildProcess
  const atExit = () => void server.kill("SIGKILL")
  process.once("exit", atExit)
  const client = new Redis(url, { lazyConnect: true, retryStrategy: () => 50 })
  client.on("error", () => undefined)

  const start = async () => {
    const settings = { port, bind: "127.0.0.1", save: "", appendonly: "no", dir: "/tmp", ...more }
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
    server = spawn(binary, args, { stdio: "ignore" })
    await until("Redis answers", () => client.ping().then(Boolean, () => false))
  }
  const kill = async () => {
    const ended = new Promise(resolve => server.once("exit", resolve))
    server.kill("SIGKILL")
    await ended
  }
  await start()
  return {
    url,
    port,
    client,
    pause: () => void server.kill("SIGSTOP"),
    resume: () => void server.kill("SIGCONT"),
    kill,
    restart: start,
    stop: async () => {
      client.disconnect()
      if (server.exitCode === null && server.signalCode === null) await kill()
      process.off("exit", atExit)
    },
  }
}
