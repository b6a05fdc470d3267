// The sandbox's chain: a real anvil as a child process, whose state outlives every kind of death. Anvil writes its state
// only when it ends in good order, so this file takes a dump after each block that holds transactions.
//
// In its folder: chain-state.json (the last dump), chain-exit.json (anvil's own, when it was told to end),
// chain-head.json (the highest block anybody can have seen), chain.pid (the keeper's group), chain.log (anvil's errors).
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { rename } from "node:fs/promises"
import { createRequire } from "node:module"
import { createServer } from "node:net"
import { constants } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { setTimeout as sleep } from "node:timers/promises"
import { promisify } from "node:util"
import { gunzip } from "node:zlib"
import { readJsonIfThere, removeTemporaryFiles, writeFileAtomic } from "./data-dir.ts"

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
type Rpc = ReturnType<typeof rpcClient>

const POLL_MS = 300
const BUSY_BLOCK_MS = 1_000
const IDLE_BLOCK_MS = 10_000
const START_MS = 20_000
const RPC_MS = 60_000
const ORPHAN_MS = 5_000
/** More than the keeper gives anvil before it kills it. */
const STOP_MS = 8_000
/** What `finalized` lags behind the head (`--slots-in-an-epoch 1`). */
const FINALITY_BLOCKS = 2

/**
 * The shell that stands between this process and anvil. Its standard input is a pipe of which only this process has the
 * other end, so it ends when this process does, also by SIGKILL; then the watcher ends anvil. Anvil's pid is told last:
 * from the moment that anybody knows it, it is watched.
 */
const KEEPER = `
trap '' PIPE
exec 3<&0
log=$1; shift
"$@" </dev/null >"$log" 2>&1 3<&- &
chain=$!
(
  while read -r _ <&3; do :; done
  kill -TERM $chain
  for _ in 1 2 3; do sleep 1; kill -0 $chain || exit; done
  kill -KILL $chain
) >/dev/null 2>&1 &
watcher=$!
exec 3<&-
echo $chain
wait $chain
status=$?
kill $watcher
exit $status
`

/**
 * Starts anvil on 127.0.0.1 with the state of `dir`, if it has one; `timeOffsetSeconds` is what the clock has been moved
 * by so far. While `busy` answers true there is a block a second, else one every ten. Throws an Error with code
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

  const keeper = spawn(
    "/bin/sh",
    [
      ...["-c", KEEPER, "keeper", file("chain.log"), anvil, "--quiet"],
      ...["--host", "127.0.0.1", "--port", `${o.port}`, "--chain-id", `${o.chainId}`, "--slots-in-an-epoch", "1"],
      // Without it anvil writes one file per block beyond 500 to ~/.foundry and leaves them there when it is killed:
      // 5 GB after 20,000 blocks. A kept state holds all block hashes, so each of the 32 costs memory.
      ...["--prune-history", "32"],
      ...["--dump-state", file("chain-exit.json")],
      ...(existsSync(file("chain-state.json")) ? ["--load-state", file("chain-state.json")] : []),
    ],
    // A group of its own: a Ctrl-C in the terminal would end anvil before our last dump.
    { detached: true, stdio: ["pipe", "pipe", "ignore"] },
  )
  const died = new Promise<{ code: number | null; signal: string | null }>(resolve => {
    keeper.once("error", () => resolve({ code: null, signal: null }))
    keeper.once("exit", (code, signal) => resolve(endOf(code, signal)))
  })
  // A write to a pipe nobody reads; the end itself is noticed by `died`.
  keeper.stdin.on("error", () => {})
  if (keeper.pid !== undefined) writeFileSync(file("chain.pid"), `${keeper.pid}`)

  const rpcUrl = `http://127.0.0.1:${o.port}`
  const rpc = rpcClient(rpcUrl)
  let pid: number
  try {
    pid = await ready(keeper, died, rpc)
    await resume(rpc, readJsonIfThere(file("chain-head.json")) as Head | undefined, o.timeOffsetSeconds)
  } catch (cause) {
    await end(keeper, died)
    const said = existsSync(file("chain.log")) ? readFileSync(file("chain.log"), "utf8").trim().slice(-1_000) : ""
    throw new Error(`The local chain did not start${said && `: ${said}`} (its state is in ${o.dir})`, { cause })
  }

  /** The head of the last dump. */
  let saved: { number: number; hash: string } | undefined
  let lastSave: Promise<void> = Promise.resolve()
  let queued: Promise<void> | undefined

  function save(): Promise<void> {
    // A save that waits has not read the state yet, so it will hold whatever its later callers have seen.
    queued ??= lastSave = lastSave
      .catch(() => {})
      .then(() => {
        queued = undefined
        return dump()
      })
    return queued
  }

  async function dump(): Promise<void> {
    // Anvil reads accounts and blocks one after the other: a block between them makes a state that contradicts itself.
    for (let attempt = 1; ; attempt++) {
      const before = await rpc.block("latest")
      const state = (await rpc("anvil_dumpState")) as string
      const after = await rpc.block("latest")
      if (before.hash !== after.hash && attempt < 10) continue
      await writeFileAtomic(file("chain-state.json"), await unzip(Buffer.from(state.slice(2), "hex")), 0o600)
      saved = { number: Number(before.number), hash: before.hash }
      return
    }
  }

  /** Saves if a block after the last dump holds transactions, or if the block of the last dump is no longer there. */
  async function poll(): Promise<void> {
    const head = await rpc.block("latest")
    if (head.hash === seenHash) return
    await rememberHead(head)
    const from = saved
    if (!from) return save()
    const news = Number(head.number) - from.number
    if (news > 0 && news <= 200) {
      const blocks = await rpc.blocks(from.number, Number(head.number))
      if (blocks[0]?.hash === from.hash && blocks.every((block, i) => i === 0 || block.transactions.length === 0)) {
        // Empty blocks are not worth a dump; they are mined again by number after a kill.
        seenHash = head.hash
        return
      }
    }
    await save()
    seenHash = head.hash
  }
}
