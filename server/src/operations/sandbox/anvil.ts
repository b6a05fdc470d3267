// Runs anvil as a child process that never outlives this one. The folder contains chain.pid (the keeper's process
// group) and chain.log (anvil's errors).
import { type ChildProcessByStdio, spawn } from "node:child_process"
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { createServer } from "node:net"
import { constants } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import type { Readable, Writable } from "node:stream"
import { setTimeout as sleep } from "node:timers/promises"
import { type AnvilRpc, anvilRpc } from "./anvil-rpc.ts"

/** How a process ended. */
export type End = { code: number | null; signal: string | null }
type Keeper = ChildProcessByStdio<Writable, Readable, null>

/** A running anvil. */
export interface Anvil {
  rpcUrl: string
  rpc: AnvilRpc
  /** Resolves with anvil's own process id once anvil answers. Throws an Error if anvil does not start. */
  ready(): Promise<number>
  /** Resolves when anvil has ended, for any reason. */
  died: Promise<End>
  /** The last lines that anvil wrote. */
  errors(): string
  /** Ends anvil through its keeper, then kills any processes that remain. */
  end(): Promise<void>
  /** Deletes the file that makes a later start wait for this process. Must be called once the process has ended. */
  forget(): void
}

const PID_FILE = "chain.pid"
const LOG_FILE = "chain.log"
const START_MS = 20_000
const PORT_MS = 5_000
/**
 * How long a later start waits for this group. The keeper gives anvil four seconds, which take longer on a busy
 * machine.
 */
const ORPHAN_MS = 30_000
/** How long anvil may take to end: longer than the keeper waits before it kills anvil. */
const STOP_MS = 8_000

/**
 * The shell between this process and anvil. Its standard input is a pipe of which only this process has the other
 * end. So the shell notices when this process ends, even by SIGKILL, and its watcher then ends anvil. Anvil's pid is
 * printed last: once anybody knows it, anvil is being watched. A watcher that has started its work is not killed, so
 * that no `sleep` remains as a zombie of the group.
 */
const KEEPER = `
trap '' PIPE
exec 3<&0
log=$1; shift
"$@" </dev/null >"$log" 2>&1 3<&- &
chain=$!
(
  while read -r _ <&3; do :; done
  trap '' TERM
  kill -TERM $chain
  i=0; while [ $i -lt 40 ]; do sleep 0.1; kill -0 $chain || exit; i=$((i+1)); done
  kill -KILL $chain
) >/dev/null 2>&1 &
watcher=$!
exec 3<&-
echo $chain
wait $chain
status=$?
kill $watcher
wait $watcher
exit $status
`

/** Starts anvil with these arguments on a port of 127.0.0.1; the keeper's files are in `dir`. */
export function startAnvil(dir: string, port: number, args: readonly string[]): Anvil {
  const pidFile = join(dir, PID_FILE)
  const logFile = join(dir, LOG_FILE)
  const keeper = spawn(
    "/bin/sh",
    ["-c", KEEPER, "keeper", logFile, anvilPath(), "--quiet", "--host", "127.0.0.1", "--port", `${port}`, ...args],
    // A separate process group, because Ctrl-C in the terminal would otherwise end anvil before our last dump.
    { detached: true, stdio: ["pipe", "pipe", "ignore"] },
  )
  const died = new Promise<End>(resolve => {
    keeper.once("error", () => resolve({ code: null, signal: null }))
    keeper.once("exit", (code, signal) => resolve(endOfShell(code, signal)))
  })
  if (keeper.pid !== undefined) writeFileSync(pidFile, `${keeper.pid}`)
  const rpcUrl = `http://127.0.0.1:${port}`
  const rpc = anvilRpc(rpcUrl)
  return {
    rpcUrl,
    rpc,
    died,
    ready: () => answering(keeper, died, rpc),
    errors: () => (existsSync(logFile) ? readFileSync(logFile, "utf8").trim().slice(-1_000) : ""),
    end: () => end(keeper),
    forget: () => rmSync(pidFile, { force: true }),
  }
}

/** The path of anvil's binary for a platform; throws an Error that names the missing package. */
export function anvilPath(platform: string = process.platform, arch: string = process.arch): string {
  const cpu = { x64: "amd64", arm64: "arm64" }[arch]
  if (!cpu || (platform !== "linux" && platform !== "darwin"))
    throw new Error(
      `The sandbox's local chain (anvil) runs on Linux and macOS, x64 or arm64, not on ${platform} ${arch}.`,
    )
  const name = `@foundry-rs/anvil-${platform}-${cpu}`
  try {
    // The binary is a dependency of that package, and may be installed where only that package finds it.
    return createRequire(import.meta.resolve("@foundry-rs/anvil/package.json")).resolve(`${name}/bin/anvil`)
  } catch {
    throw new Error(
      `The sandbox's local chain needs the package ${name}, which is not installed here (npm leaves it out if the ` +
        `registry lacks it). Try: npm install --no-save ${name}@1.7.1`,
    )
  }
}

/** Waits until the leftovers of an earlier process have ended; throws `PORT_BUSY` if the port is still taken. */
export async function waitForOrphan(dir: string, port: number): Promise<void> {
  const pidFile = join(dir, PID_FILE)
  const group = existsSync(pidFile) ? Number(readFileSync(pidFile, "utf8")) : 0
  // Checking the port is not enough, because anvil closes it before it writes its last dump. A group that runs longer
  // than this is another program whose id happens to be the same.
  if (group) await until(ORPHAN_MS, async () => !groupAlive(group))
  if (await until(PORT_MS, () => portFree(port))) return
  const text =
    `Port ${port} on 127.0.0.1 is in use, so the sandbox's local chain cannot start. ` +
    `Stop the program that uses it, or choose another port with RPC_PORT, for example RPC_PORT=${port + 1}.`
  throw Object.assign(new Error(text), { code: "PORT_BUSY" })
}

/** Resolves with the process id once anvil answers; throws an Error if it ends before that or takes too long. */
async function answering(keeper: Keeper, died: Promise<End>, rpc: AnvilRpc): Promise<number> {
  let over = false
  const gone = died.then(how => {
    over = true
    throw new Error(`anvil ended with ${how.signal ?? `code ${how.code}`}`)
  })
  const pid = new Promise<number>(resolve => createInterface(keeper.stdout).once("line", line => resolve(Number(line))))
  const answers = until(START_MS, () =>
    rpc.call("eth_chainId").then(
      () => true,
      () => over,
    ),
  )
  const up = answers.then(ok => {
    if (!ok) throw new Error(`anvil did not answer within ${START_MS / 1_000} s`)
    return pid
  })
  return Promise.race([up, gone])
}

async function end(keeper: Keeper): Promise<void> {
  keeper.stdin.destroy()
  const group = keeper.pid
  if (group === undefined || (await until(STOP_MS, async () => !groupAlive(group)))) return
  try {
    process.kill(-group, "SIGKILL")
  } catch {
    // The group has just ended.
  }
}

function groupAlive(group: number): boolean {
  try {
    process.kill(-group, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM"
  }
  try {
    // A dead orphan still exists until process 1 reaps it, which may take a second or two.
    return !/\) Z /.test(readFileSync(`/proc/${group}/stat`, "utf8"))
  } catch {
    return true
  }
}

function portFree(port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(false)
      else reject(error)
    })
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)))
  })
}

async function until(limitMs: number, holds: () => Promise<boolean>): Promise<boolean> {
  for (const limit = Date.now() + limitMs; ; ) {
    if (await holds()) return true
    if (Date.now() > limit) return false
    await sleep(20)
  }
}

/** Reads how the shell ended. A shell reports a signal as the code 128 + number. */
function endOfShell(code: number | null, signal: string | null): End {
  const name = code !== null && Object.entries(constants.signals).find(([, number]) => number === code - 128)?.[0]
  return name ? { code: null, signal: name } : { code, signal }
}
