// The sandbox's chain: a real anvil as a child process (`anvil.ts`), whose state survives however the process ends
// (`chain-state.ts`).
import { mkdirSync } from "node:fs"
import { setTimeout as sleep } from "node:timers/promises"
import { removeTemporaryFiles } from "../../platform/config/data-dir.ts"
import { type Anvil, type End, startAnvil, waitForOrphan } from "./anvil.ts"
import { quantity } from "./anvil-rpc.ts"
import { type Log, openState, resume, stateArguments } from "./chain-state.ts"

export interface LocalChain {
  rpcUrl: string
  /** The process id of anvil itself. */
  pid: number
  /** Resolves when everything mined before the call is on disk. */
  save(): Promise<void>
  /** Mines this many blocks and saves. */
  mine(blocks: number): Promise<void>
  /** Replaces the last blocks with the same number of empty blocks, like a reorganization, and saves. */
  reorg(blocks: number): Promise<void>
  /** Moves the chain's clock, mines one block at the new time and saves. */
  advance(seconds: number): Promise<void>
  /** Resolves when anvil has ended although `stop` was not called. */
  exited: Promise<End>
  /** Saves the state and ends anvil; resolves when anvil has ended. */
  stop(): Promise<void>
}

interface ChainOptions {
  dir: string
  port: number
  chainId: number
  timeOffsetSeconds: number
  busy: () => Promise<boolean>
  log: Log
}

const POLL_MS = 300
const BUSY_BLOCK_MS = 1_000
const IDLE_BLOCK_MS = 10_000
/**
 * The finalized block is two epochs behind the head. That is deeper than CONFIRMATIONS, so that reorgs of confirmed
 * blocks can be tested.
 */
const EPOCH_SLOTS = "4"

/**
 * Starts anvil on 127.0.0.1 with the state in `dir`, if there is any. `timeOffsetSeconds` is how far the clock has
 * been moved so far. A block is mined every second while `busy` returns true, and every ten seconds otherwise. Throws
 * an Error with code `PORT_BUSY` if another program has the port.
 */
export async function startLocalChain(o: ChainOptions): Promise<LocalChain> {
  const { log } = o
  const anvil = await startWithState(o)
  const { rpc, rpcUrl } = anvil
  const pid = await resumed(anvil, o)
  const state = openState(rpc, o.dir)
  const stopped = new AbortController()

  let mined = Date.now()
  async function produce(): Promise<void> {
    if (!(await o.busy()) && Date.now() - mined < IDLE_BLOCK_MS) return
    if (stopped.signal.aborted) return
    mined = Date.now()
    await rpc.call("evm_mine")
  }

  await state.follow().catch(async error => {
    await anvil.end()
    throw error
  })
  const following = every(POLL_MS, state.follow, stopped.signal, log)
  void every(BUSY_BLOCK_MS, produce, stopped.signal, log)

  let stopping: Promise<void> | undefined
  let dead = false
  const exited = new Promise<End>(resolve => {
    void anvil.died.then(how => {
      dead = true
      stopped.abort()
      // If only the keeper died, Node has closed the keeper's standard input by now, and the watcher ends anvil.
      if (!stopping) resolve(how)
    })
  })

  async function stopOnce(): Promise<void> {
    stopped.abort()
    await following
    if (!dead) await state.save().catch(err => log.error({ err }, "the local chain's last state could not be saved"))
    await anvil.end()
    anvil.forget()
  }

  log.info({ rpcUrl, pid }, "the local chain is running")
  return {
    rpcUrl,
    pid,
    exited,
    save: state.save,
    async mine(blocks) {
      // Anvil needs about 1 ms for a block. Mining in parts keeps each call far below the time limit.
      for (let left = blocks; left > 0; left -= 500) await rpc.call("anvil_mine", [quantity(Math.min(left, 500))])
      await state.save()
    },
    async reorg(blocks) {
      await rpc.call("anvil_reorg", [blocks, []])
      await state.save()
    },
    async advance(seconds) {
      await rpc.call("evm_increaseTime", [quantity(seconds)])
      await rpc.call("evm_mine")
      await state.save()
    },
    stop() {
      stopping ??= stopOnce()
      return stopping
    },
  }
}

/** Starts anvil with the contents of the folder, once no earlier process writes there. Anvil may not answer yet. */
async function startWithState(o: ChainOptions): Promise<Anvil> {
  mkdirSync(o.dir, { recursive: true, mode: 0o700 })
  await waitForOrphan(o.dir, o.port)
  removeTemporaryFiles(o.dir)
  return startAnvil(o.dir, o.port, [
    "--chain-id",
    `${o.chainId}`,
    "--slots-in-an-epoch",
    EPOCH_SLOTS,
    // Without this option, anvil writes the state of each block beyond 500 to a file in ~/.foundry. If anvil is
    // killed, the files stay there: 5 GB after 20,000 blocks. Every stored state contains all block hashes, so only a
    // few are kept.
    "--prune-history",
    "32",
    ...(await stateArguments(o.dir, o.timeOffsetSeconds, o.log)),
  ])
}

/**
 * Waits until anvil answers, at the height and time of its last run, and returns its process id. If that fails, ends
 * anvil and throws.
 */
async function resumed(anvil: Anvil, o: ChainOptions): Promise<number> {
  try {
    const pid = await anvil.ready()
    await resume(anvil.rpc, o.dir, o.timeOffsetSeconds)
    return pid
  } catch (cause) {
    await anvil.end()
    const errors = anvil.errors()
    throw new Error(`The local chain did not start${errors && `: ${errors}`} (its state is in ${o.dir})`, { cause })
  }
}

/** Repeats `work` until the signal aborts, and logs any error that it throws. */
async function every(ms: number, work: () => Promise<void>, signal: AbortSignal, log: Log): Promise<void> {
  for (;;) {
    await sleep(ms, undefined, { signal }).catch(() => {})
    if (signal.aborted) return
    try {
      await work()
    } catch (err) {
      if (!signal.aborted) log.error({ err }, "the local chain could not be maintained")
    }
  }
}
