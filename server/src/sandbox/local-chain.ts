// The sandbox's chain: a real anvil as a child process, whose state outlives every kind of death. Anvil writes its state
// only when it ends in good order, so this file takes a dump after each block that holds transactions.
//
// In its folder: chain-state.json (the last dump), chain-exit.json (anvil's own, written when it is stopped),
// chain-head.json (the highest block anybody can have seen), chain.pid (the keeper's group), chain.log (anvil's errors).
import { type ChildProcessByStdio, spawn } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { createServer } from "node:net"
import { constants } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import type { Readable, Writable } from "node:stream"
import { setTimeout as sleep } from "node:timers/promises"
import { promisify } from "node:util"
import { gunzip } from "node:zlib"
import { readJsonIfThere, removeTemporaryFiles, writeFileAtomic } from "../config/data-dir.ts"

export interface LocalChain {
  rpcUrl: string
  /** Anvil's own process. */
  pid: number
  /** Resolves when everything mined before the call is on disk. */
  save(): Promise<void>
  /** Mines this many blocks and saves. */
  mine(blocks: number): Promise<void>
  /** Moves the chain's clock, mines one block at the new time and saves. */
  advance(seconds: number): Promise<void>
  /** Resolves when anvil ended though nobody called `stop`. */
  exited: Promise<{ code: number | null; signal: string | null }>
  /** Saves and ends anvil; resolves when it is gone. */
  stop(): Promise<void>
}

interface Log {
  info(o: object, msg: string): void
  warn(o: object, msg: string): void
  error(o: object, msg: string): void
}

type Block = { number: string; hash: string; timestamp: string; transactions: string[] }
type Head = { number: number; timestamp: number }
type Answer = { result?: unknown; error?: { message: string } }
type End = { code: number | null; signal: string | null }
type Keeper = ChildProcessByStdio<Writable, Readable, null>
type Rpc = ReturnType<typeof rpcClient>

const unzip = promisify(gunzip)

const POLL_MS = 300
const BUSY_BLOCK_MS = 1_000
const IDLE_BLOCK_MS = 10_000
const START_MS = 20_000
const RPC_MS = 60_000
const PORT_MS = 5_000
/** The keeper gives anvil four seconds, which are more on a busy machine. */
const ORPHAN_MS = 30_000
/** More than the keeper gives anvil before it kills it. */
const STOP_MS = 8_000
/** Finalized is two epochs behind the head: deeper than CONFIRMATIONS, so that a reorg of what is confirmed can be tried. */
const EPOCH_SLOTS = "4"
/** Mined at each start: anvil loads the state of the head alone, so reads at `finalized` (head - 8) fail until they are there. */
const REVIVAL_BLOCKS = 9
/** This many empty blocks are worth a dump: mining them again takes 0.1 s. */
const EMPTY_BLOCKS = 200

/**
 * The shell that stands between this process and anvil. Its standard input is a pipe of which only this process has the
 * other end, so it ends when this process does, also by SIGKILL; then the watcher ends anvil. Anvil's pid is printed last:
 * from the moment that anybody knows it, it is watched. A watcher that is at work ends by itself (and is not killed, so
 * that no `sleep` is left behind as a zombie of the group).
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

/**
 * Starts anvil on 127.0.0.1 with the state of `dir`, if it has one; `timeOffsetSeconds` is how far the clock has been
 * moved so far. While `busy` returns true there is a block every second, else one every ten. Throws an Error with code
 * `PORT_BUSY` where another program has the port.
 */
export async function startLocalChain(o: {
  dir: string
  port: number
  chainId: number
  timeOffsetSeconds: number
  busy: () => Promise<boolean>
  log: Log
}): Promise<LocalChain> {
  const { log } = o
  const anvil = anvilPath()
  mkdirSync(o.dir, { recursive: true, mode: 0o700 })
  const file = (name: string) => join(o.dir, name)
  await waitForOrphan(file("chain.pid"), o.port)
  removeTemporaryFiles(o.dir)
  await adoptExitDump(file("chain-exit.json"), file("chain-state.json"), log)

  // One genesis for ever: each anvil creates its own before it loads the state, and dumps both; with two of them in a
  // dump, it is a matter of chance which one is block 0 after the next start (seen in one of four).
  const genesis = (readJsonIfThere(file("chain-genesis.json")) as { time: number } | undefined) ?? {
    time: Math.floor(Date.now() / 1_000) + o.timeOffsetSeconds,
  }
  await writeFileAtomic(file("chain-genesis.json"), JSON.stringify(genesis), 0o600)

  const keeper = spawn(
    "/bin/sh",
    [
      ...["-c", KEEPER, "keeper", file("chain.log"), anvil, "--quiet"],
      ...["--host", "127.0.0.1", "--port", `${o.port}`, "--chain-id", `${o.chainId}`],
      ...["--slots-in-an-epoch", EPOCH_SLOTS, "--timestamp", `${genesis.time}`],
      // Without it anvil writes the state of each block beyond 500 to a file in ~/.foundry and leaves them there when it
      // is killed: 5 GB after 20,000 blocks. Every kept state holds all block hashes, so few are kept.
      ...["--prune-history", "32"],
      ...["--dump-state", file("chain-exit.json")],
      ...(existsSync(file("chain-state.json")) ? ["--load-state", file("chain-state.json")] : []),
    ],
    // A process group of its own: a Ctrl-C in the terminal would end anvil before our last dump.
    { detached: true, stdio: ["pipe", "pipe", "ignore"] },
  )
  const died = new Promise<End>(resolve => {
    keeper.once("error", () => resolve({ code: null, signal: null }))
    keeper.once("exit", (code, signal) => resolve(endOfShell(code, signal)))
  })
  if (keeper.pid !== undefined) writeFileSync(file("chain.pid"), `${keeper.pid}`)

  const rpcUrl = `http://127.0.0.1:${o.port}`
  const rpc = rpcClient(rpcUrl)
  let pid: number
  try {
    pid = await ready(keeper, died, rpc)
    await resume(rpc, readJsonIfThere(file("chain-head.json")) as Head | undefined, o.timeOffsetSeconds)
  } catch (cause) {
    await end(keeper)
    const said = existsSync(file("chain.log")) ? readFileSync(file("chain.log"), "utf8").trim().slice(-1_000) : ""
    throw new Error(`The local chain did not start${said && `: ${said}`} (its state is in ${o.dir})`, { cause })
  }

  /** The head of the last dump. */
  let saved: { number: number; hash: string } | undefined
  let lastSave: Promise<void> = Promise.resolve()
  let queued: Promise<void> | undefined

  function save(): Promise<void> {
    // A save that waits for its turn has not read the state yet, so later callers can share it.
    queued ??= lastSave = lastSave
      .catch(() => {})
      .then(() => {
        queued = undefined
        return dump()
      })
    return queued
  }

  async function dump(): Promise<void> {
    // Anvil reads accounts and blocks one after the other: a block in between gives an inconsistent state.
    for (let attempt = 1; ; attempt++) {
      const before = await rpc.head()
      const state = (await rpc.call("anvil_dumpState")) as string
      if ((await rpc.head()).hash !== before.hash && attempt < 10) continue
      await writeFileAtomic(file("chain-state.json"), await unzip(Buffer.from(state.slice(2), "hex")), 0o600)
      saved = { number: Number(before.number), hash: before.hash }
      return
    }
  }

  let seen: string | undefined

  async function look(): Promise<void> {
    const head = await rpc.head()
    if (head.hash === seen) return
    // Empty blocks are not dumped, but a client that has read up to a block must not see it reappear after a restart:
    // the next start mines up to this number.
    const known: Head = { number: Number(head.number), timestamp: Number(head.timestamp) }
    await writeFileAtomic(file("chain-head.json"), JSON.stringify(known), 0o600)
    if (await worthSaving(known.number)) await save()
    seen = head.hash
  }

  async function worthSaving(number: number): Promise<boolean> {
    if (!saved || number < saved.number || number > saved.number + EMPTY_BLOCKS) return true
    const [last, ...since] = await rpc.blocks(saved.number, number)
    return last?.hash !== saved.hash || since.some(block => block.transactions.length > 0)
  }

  let mined = Date.now()

  async function produce(): Promise<void> {
    if (!(await o.busy()) && Date.now() - mined < IDLE_BLOCK_MS) return
    if (stopped.signal.aborted) return
    mined = Date.now()
    await rpc.call("evm_mine")
  }

  const stopped = new AbortController()

  async function every(ms: number, work: () => Promise<void>): Promise<void> {
    for (;;) {
      await sleep(ms, undefined, { signal: stopped.signal }).catch(() => {})
      if (stopped.signal.aborted) return
      try {
        await work()
      } catch (err) {
        if (!stopped.signal.aborted) log.error({ err }, "the local chain could not be maintained")
      }
    }
  }

  await look().catch(async error => {
    await end(keeper)
    throw error
  })
  const looking = every(POLL_MS, look)
  void every(BUSY_BLOCK_MS, produce)

  let stopping: Promise<void> | undefined
  let dead = false
  const exited = new Promise<End>(resolve => {
    void died.then(how => {
      dead = true
      stopped.abort()
      // If only the keeper died, Node has closed its standard input by now, and the watcher ends anvil.
      if (!stopping) resolve(how)
    })
  })

  async function stopOnce(): Promise<void> {
    stopped.abort()
    await looking
    if (!dead) await save().catch(err => log.error({ err }, "the local chain's last state could not be saved"))
    await end(keeper)
    rmSync(file("chain.pid"), { force: true })
  }

  log.info({ rpcUrl, pid }, "the local chain is running")
  return {
    rpcUrl,
    pid,
    save,
    async mine(blocks) {
      // Anvil needs about 1 ms for a block; parts keep each call far from the time limit.
      for (let left = blocks; left > 0; left -= 500) await rpc.call("anvil_mine", [quantity(Math.min(left, 500))])
      await save()
    },
    async advance(seconds) {
      await rpc.call("evm_increaseTime", [quantity(seconds)])
      await rpc.call("evm_mine")
      await save()
    },
    exited,
    stop() {
      stopping ??= stopOnce()
      return stopping
    },
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
    // It is a dependency of that package, and may be installed where only that one finds it.
    return createRequire(import.meta.resolve("@foundry-rs/anvil/package.json")).resolve(`${name}/bin/anvil`)
  } catch {
    throw new Error(
      `The sandbox's local chain needs the package ${name}, which is not installed here (npm leaves it out where the ` +
        `registry lacks it). Try: npm install --no-save ${name}@1.7.1`,
    )
  }
}

/** Waits until the leftovers of an earlier process have ended; throws `PORT_BUSY` if the port is taken after that. */
async function waitForOrphan(pidFile: string, port: number): Promise<void> {
  const group = existsSync(pidFile) ? Number(readFileSync(pidFile, "utf8")) : 0
  // Checking the port is not enough: anvil closes it before its last dump is written. A group that continues for longer
  // belongs to another program that got the same number.
  if (group) await until(ORPHAN_MS, async () => !groupAlive(group))
  if (await until(PORT_MS, () => portFree(port))) return
  const text =
    `Port ${port} on 127.0.0.1 is in use, so the sandbox's local chain cannot start. ` +
    `Stop the program that has it, or choose another with RPC_PORT, for instance RPC_PORT=${port + 1}.`
  throw Object.assign(new Error(text), { code: "PORT_BUSY" })
}

/** Uses anvil's own last dump instead of ours if it is complete and not older; its file is deleted afterwards. */
async function adoptExitDump(exitFile: string, stateFile: string, log: Log): Promise<void> {
  if (!existsSync(exitFile)) return
  const height = (text: string) =>
    Number((JSON.parse(text) as { best_block_number: number | string }).best_block_number)
  const text = readFileSync(exitFile, "utf8")
  try {
    if (!existsSync(stateFile) || height(text) >= height(readFileSync(stateFile, "utf8")))
      await writeFileAtomic(stateFile, text, 0o600)
  } catch (err) {
    log.warn({ err }, "anvil's last dump is incomplete; the one before it is used")
  }
  rmSync(exitFile)
}

/** Resolves with anvil's pid once it answers. */
async function ready(keeper: Keeper, died: Promise<End>, rpc: Rpc): Promise<number> {
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

/** Restores a loaded chain's clock and height, neither of which the state contains in full. */
async function resume(rpc: Rpc, known: Head | undefined, timeOffsetSeconds: number): Promise<void> {
  const loaded = await rpc.head()
  const lastTime = Math.max(Number(loaded.timestamp), known?.timestamp ?? 0)
  // Anvil's clock starts at the genesis, which is in the past by now; no block may be earlier than the last one.
  const wall = Math.floor(Date.now() / 1_000)
  await rpc.call("evm_setTime", [quantity(Math.max(wall + timeOffsetSeconds, lastTime))])
  const height = Number(loaded.number)
  const lost = Math.max((known?.number ?? 0) - height, 0)
  const blocks = lost + height > 0 ? lost + REVIVAL_BLOCKS : 0
  if (blocks > 0) await rpc.call("anvil_mine", [quantity(blocks)])
}

/** Ends anvil through its keeper, and then kills whatever is left. */
async function end(keeper: Keeper): Promise<void> {
  keeper.stdin.destroy()
  const group = keeper.pid
  if (group === undefined || (await until(STOP_MS, async () => !groupAlive(group)))) return
  try {
    process.kill(-group, "SIGKILL")
  } catch {
    // It ended just now.
  }
}

function groupAlive(group: number): boolean {
  try {
    process.kill(-group, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM"
  }
  try {
    // A dead orphan still counts until process 1 reaps it, which some do only every second or two.
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

/** A shell reports a signal as the code 128 + number. */
function endOfShell(code: number | null, signal: string | null): End {
  const name = code !== null && Object.entries(constants.signals).find(([, number]) => number === code - 128)?.[0]
  return name ? { code: null, signal: name } : { code, signal }
}

function rpcClient(url: string) {
  async function post(body: object): Promise<unknown> {
    const response = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(RPC_MS),
    })
    return response.json()
  }
  const request = (method: string, params: unknown[]) => ({ jsonrpc: "2.0", id: 1, method, params })
  const result = ({ result, error }: Answer) => {
    if (error) throw new Error(`anvil: ${error.message}`)
    return result
  }

  async function call(method: string, params: unknown[] = []): Promise<unknown> {
    return result((await post(request(method, params))) as Answer)
  }
  return {
    call,
    head: async () => (await call("eth_getBlockByNumber", ["latest", false])) as Block,
    /** The blocks of these numbers, both included. */
    async blocks(from: number, to: number): Promise<Block[]> {
      const numbers = Array.from({ length: to - from + 1 }, (_, i) => quantity(from + i))
      const answers = await post(numbers.map(number => request("eth_getBlockByNumber", [number, false])))
      return (answers as Answer[]).map(answer => result(answer) as Block)
    },
  }
}

function quantity(n: number): string {
  return `0x${n.toString(16)}`
}
