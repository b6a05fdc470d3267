/** A Postgres server of the tests' own: a fresh cluster on loopback, ended with the process that started it. */
import { execFileSync, spawn, spawnSync } from "node:child_process"
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import pg from "pg"
import { freePort } from "./e2e/program.ts"

/** The folder of the newest installed server, or undefined. */
export function postgresBinaries(): string | undefined {
  const root = "/usr/lib/postgresql"
  if (!existsSync(root)) return undefined
  const versions = readdirSync(root).sort((a, b) => Number.parseInt(b, 10) - Number.parseInt(a, 10))
  return versions.map(version => join(root, version, "bin")).find(bin => existsSync(join(bin, "postgres")))
}

export interface TestPostgres {
  url: string
  /** The same by its Unix socket: a statement takes both sides 0.04 ms of CPU less. */
  socketUrl: string
  /** The server's own process; each connection has a child of it. */
  pid(): number
  /** Pauses it: connections stay open and nothing is answered. */
  pause(): void
  resume(): void
  /** Ends it at once, until `start`. */
  kill(): Promise<void>
  /** Starts it again at the same address. */
  start(): Promise<void>
  /** Kills all of it as a power cut would, and starts it again. */
  crash(): Promise<void>
  /** Stops the writer of its log until it crashes: what a transaction doesn't wait for itself is on no disk then. */
  stopLogWriter(): Promise<void>
  /** Makes a replica a primary of its own. */
  promote(): Promise<void>
  /** What its log says of deadlocks: who waited for whom, and with which statements. */
  deadlocks(): string
  /** Fills its disk, which must be one of its own, to the last page. */
  fill(): void
  /** Undoes it. */
  makeRoom(): void
  /** Stops it and removes its folder. */
  stop(): Promise<void>
}

/**
 * Starts a cluster in a temporary folder. `durable`: committed data survives a crash of the server; the other tests do
 * without for speed. `fsync`: it survives a power cut too, as a Postgres for real money must. Without `autovacuum` the space of
 * deleted rows is not used again, so that rows are found in the order in which they were inserted. `replicaOf` makes it a streaming replica of
 * another, durable one; `port` is where it listens, otherwise a free one. `diskMb` gives it a disk of its own of so many megabytes,
 * where {@link canMount}. `settings`: further ones, as `name=value`.
 */
export async function startPostgres({
  durable = false,
  fsync = false,
  autovacuum = true,
  replicaOf = undefined as TestPostgres | undefined,
  port: given = undefined as number | undefined,
  diskMb = undefined as number | undefined,
  settings: further = [] as readonly string[],
} = {}): Promise<TestPostgres> {
  const bin = postgresBinaries()
  if (!bin) throw new Error("no Postgres server is installed: apt-get install postgresql")
  const dir = mkdtempSync(join(tmpdir(), "sluice-pg-"))
  if (diskMb !== undefined) mountDisk(dir, diskMb)
  // The server refuses to run as root.
  const isRoot = process.getuid?.() === 0
  const id = (flag: string) => Number.parseInt(execFileSync("id", [flag, "postgres"]).toString(), 10)
  const owner = isRoot ? { uid: id("-u"), gid: id("-g") } : {}
  if (owner.uid !== undefined && owner.gid !== undefined) chownSync(dir, owner.uid, owner.gid)
  chmodSync(dir, 0o700)
  const log = openSync(`${dir}.log`, "a")
  const options = {
    ...owner,
    cwd: "/",
    stdio: ["ignore" as const, "ignore" as const, log],
    env: { PATH: process.env.PATH, LC_ALL: "C" },
  }
  if (replicaOf)
    execFileSync(
      join(bin, "pg_basebackup"),
      ["-D", dir, "-d", replicaOf.url, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"],
      options,
    )
  else execFileSync(join(bin, "initdb"), ["-D", dir, "-U", "sluice", "-A", "trust", "-E", "UTF8", "--no-sync"], options)
  const port = given ?? (await freePort())
  const settings = [
    ...(fsync ? [] : ["fsync=off", "full_page_writes=off"]),
    ...(durable || fsync ? [] : ["synchronous_commit=off"]),
    ...(autovacuum ? [] : ["autovacuum=off"]),
    "max_connections=200",
    "listen_addresses=127.0.0.1",
    ...further,
  ]
  const args = ["-D", dir, "-p", String(port), "-k", dir, ...settings.flatMap(setting => ["-c", setting])]
  let server = spawn(join(bin, "postgres"), args, options)
  const kill = () => void server.kill("SIGQUIT")
  process.once("exit", kill)
  const url = `postgres://sluice@127.0.0.1:${port}/postgres`
  await answering(url)
  /** To the server and to each of its children, which are in process groups of their own. */
  const signalChildren = (name: "STOP" | "CONT" | "KILL") =>
    void spawnSync("pkill", [`-${name}`, "-P", `${server.pid}`])
  const signalAll = (name: "STOP" | "CONT") => {
    server.kill(`SIG${name}`)
    signalChildren(name)
  }
  const end = async () => {
    const ended = new Promise(resolve => server.once("exit", resolve))
    // It makes no more children. Those it has would notice a moment later that it is gone, and commit until then.
    server.kill("SIGSTOP")
    signalChildren("KILL")
    server.kill("SIGKILL")
    await ended
  }
  const start = async () => {
    // Its children notice a moment later that it is gone; until then their memory keeps a new server from starting.
    for (;;) {
      server = spawn(join(bin, "postgres"), args, options)
      const refused = new Promise<boolean>(resolve => server.once("exit", () => resolve(true)))
      if (!(await Promise.race([refused, answering(url).then(() => false)]))) return
    }
  }
  return {
    url,
    socketUrl: `${url}?host=${encodeURIComponent(dir)}`,
    pid: () => server.pid ?? 0,
    pause: () => signalAll("STOP"),
    resume: () => signalAll("CONT"),
    kill: end,
    start,
    crash: async () => {
      await end()
      await start()
    },
    stopLogWriter: async () => {
      const client = new pg.Client({ connectionString: url })
      await client.connect()
      const { rows } = await client
        .query<{ pid: number }>("select pid from pg_stat_activity where backend_type = 'walwriter'")
        .finally(() => client.end())
      for (const { pid } of rows) process.kill(pid, "SIGSTOP")
    },
    deadlocks: () => {
      const [, ...after] = readFileSync(`${dir}.log`, "utf8").split("deadlock detected")
      return after.map(text => text.split("\n").slice(1, 14).join("\n")).join("\n\n")
    },
    promote: async () => {
      const client = new pg.Client({ connectionString: url })
      await client.connect()
      await client.query("select pg_promote()").finally(() => client.end())
    },
    stop: async () => {
      if (server.exitCode === null && server.signalCode === null) {
        const ended = new Promise(resolve => server.once("exit", resolve))
        server.kill("SIGINT")
        await ended
      }
      process.off("exit", kill)
      closeSync(log)
      rmSync(`${dir}.log`, { force: true })
      if (diskMb !== undefined) execFileSync("umount", [dir])
      rmSync(dir, { recursive: true, force: true })
    },
    fill: () => {
      writeFileSync(filler(dir), "")
      // Ends where there is no room: that is what it is for.
      spawnSync("dd", ["if=/dev/zero", `of=${filler(dir)}`, "bs=4096"], { stdio: "ignore" })
    },
    makeRoom: () => rmSync(filler(dir)),
  }
}

const filler = (dir: string): string => join(dir, "filler")

const mountDisk = (dir: string, megabytes: number): void =>
  void execFileSync("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", dir], { stdio: "ignore" })

/** Whether this user may mount a disk: root, and not in every container. */
export function canMount(): boolean {
  const dir = mkdtempSync(join(tmpdir(), "sluice-mount-"))
  try {
    mountDisk(dir, 1)
    execFileSync("umount", [dir])
    return true
  } catch {
    return false
  } finally {
    rmSync(dir, { recursive: true })
  }
}

async function answering(url: string): Promise<void> {
  for (const until = Date.now() + 30_000; ; await sleep(50)) {
    const client = new pg.Client({ connectionString: url })
    try {
      await client.connect()
      await client.end()
      return
    } catch (error) {
      if (Date.now() > until) throw error
    }
  }
}
