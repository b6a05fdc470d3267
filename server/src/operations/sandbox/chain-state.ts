// The state from which a restart continues. Anvil writes its state only if it ends normally, so this file takes a
// dump after each block with transactions. The chain's folder has four files. chain-state.json is the last dump, and
// chain-exit.json anvil's own, written when it is stopped. chain-head.json has the highest block that anybody can
// have seen, and chain-genesis.json the time of block 0.
import { existsSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { gunzip } from "node:zlib"
import { readJsonIfThere, writeFileAtomic } from "../../platform/config/data-dir.ts"
import { type AnvilRpc, quantity } from "./anvil-rpc.ts"

/** The log for problems with the chain. */
export interface Log {
  info(o: object, msg: string): void
  warn(o: object, msg: string): void
  error(o: object, msg: string): void
}

type Head = { number: number; timestamp: number }

/** Saves the state of a running chain. */
export interface ChainState {
  /** Resolves when everything mined before the call is on disk. */
  save(): Promise<void>
  /** Records the head if it has changed, and saves the state if that is worth a dump. */
  follow(): Promise<void>
}

const unzip = promisify(gunzip)

/**
 * How many blocks are mined at each start. Anvil loads only the state of the head, so reads at `finalized` (head - 8)
 * fail until these blocks exist.
 */
const REVIVAL_BLOCKS = 9
/** After how many empty blocks a dump is taken. Mining that many again takes 0.1 s. */
const EMPTY_BLOCKS = 200

const filesOf = (dir: string) => ({
  state: join(dir, "chain-state.json"),
  exit: join(dir, "chain-exit.json"),
  head: join(dir, "chain-head.json"),
  genesis: join(dir, "chain-genesis.json"),
})

/** The arguments with which anvil continues from the folder's state, and writes its own dump there when it ends. */
export async function stateArguments(dir: string, timeOffsetSeconds: number, log: Log): Promise<string[]> {
  const { state, exit, genesis } = filesOf(dir)
  await adoptExitDump(exit, state, log)
  // The genesis never changes. Each anvil creates a block 0 of its own before it loads the state, and dumps both. If
  // a dump has two, block 0 after the next start may be either of them (seen in one of four starts).
  const { time } = (readJsonIfThere(genesis) as { time: number } | undefined) ?? {
    time: Math.floor(Date.now() / 1_000) + timeOffsetSeconds,
  }
  await writeFileAtomic(genesis, JSON.stringify({ time }), 0o600)
  return ["--timestamp", `${time}`, "--dump-state", exit, ...(existsSync(state) ? ["--load-state", state] : [])]
}

/** Uses anvil's own last dump instead of ours if anvil's is complete and not older, then deletes anvil's file. */
async function adoptExitDump(exitFile: string, stateFile: string, log: Log): Promise<void> {
  if (!existsSync(exitFile)) return
  const height = (text: string) =>
    Number((JSON.parse(text) as { best_block_number: number | string }).best_block_number)
  const text = readFileSync(exitFile, "utf8")
  try {
    if (!existsSync(stateFile) || height(text) >= height(readFileSync(stateFile, "utf8")))
      await writeFileAtomic(stateFile, text, 0o600)
  } catch (err) {
    log.warn({ err }, "anvil's last dump is incomplete; the previous one is used")
  }
  rmSync(exitFile)
}

/** Restores the clock and the height of a loaded chain, because the state contains neither in full. */
export async function resume(rpc: AnvilRpc, dir: string, timeOffsetSeconds: number): Promise<void> {
  const known = readJsonIfThere(filesOf(dir).head) as Head | undefined
  const loaded = await rpc.head()
  const lastTime = Math.max(Number(loaded.timestamp), known?.timestamp ?? 0)
  // Anvil's clock starts at the genesis, which is in the past by now. No block may be earlier than the last one.
  const wall = Math.floor(Date.now() / 1_000)
  await rpc.call("evm_setTime", [quantity(Math.max(wall + timeOffsetSeconds, lastTime))])
  const height = Number(loaded.number)
  const lost = Math.max((known?.number ?? 0) - height, 0)
  const blocks = lost + height > 0 ? lost + REVIVAL_BLOCKS : 0
  if (blocks > 0) await rpc.call("anvil_mine", [quantity(blocks)])
}

/** Opens the state of a resumed chain. */
export function openState(rpc: AnvilRpc, dir: string): ChainState {
  const files = filesOf(dir)
  /** The head of the last dump. */
  let saved: { number: number; hash: string } | undefined
  let lastSave: Promise<void> = Promise.resolve()
  let queued: Promise<void> | undefined
  let seen: string | undefined

  function save(): Promise<void> {
    // A save that is waiting for its turn has not read the state yet, so later callers can share it.
    queued ??= lastSave = lastSave
      .catch(() => {})
      .then(() => {
        queued = undefined
        return dump()
      })
    return queued
  }

  async function dump(): Promise<void> {
    // Anvil reads accounts and blocks one after the other, so a block mined in between makes the state inconsistent.
    for (let attempt = 1; ; attempt++) {
      const before = await rpc.head()
      const state = (await rpc.call("anvil_dumpState")) as string
      if ((await rpc.head()).hash !== before.hash && attempt < 10) continue
      await writeFileAtomic(files.state, await unzip(Buffer.from(state.slice(2), "hex")), 0o600)
      saved = { number: Number(before.number), hash: before.hash }
      return
    }
  }

  async function follow(): Promise<void> {
    const head = await rpc.head()
    if (head.hash === seen) return
    // Empty blocks are not dumped. But a client that has read a block must not see a new block with the same number
    // after a restart. So the next start mines up to this number.
    const known: Head = { number: Number(head.number), timestamp: Number(head.timestamp) }
    await writeFileAtomic(files.head, JSON.stringify(known), 0o600)
    if (await worthSaving(known.number)) await save()
    seen = head.hash
  }

  async function worthSaving(number: number): Promise<boolean> {
    if (!saved || number < saved.number || number > saved.number + EMPTY_BLOCKS) return true
    const [last, ...since] = await rpc.blocks(saved.number, number)
    return last?.hash !== saved.hash || since.some(block => block.transactions.length > 0)
  }

  return { save, follow }
}
