/**
 * What `sluice listen` keeps on this machine, so that after a kill, the next run continues with the same listener. It
 * keeps the id, the secret, and the ids of deliveries that it had started to post. The files are next to the
 * profiles, and only their owner can read them.
 */
import { createHash } from "node:crypto"
import { appendFileSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { profilesFile } from "../profiles.ts"

/**
 * The facts that identify a run. If two runs have the same facts, the second continues with the listener of the
 * first.
 */
export interface Sought {
  url: string
  apiKey: string
  events: readonly string[]
  callbacks: boolean
  /** The address to which deliveries are posted, or a note that they are only printed. */
  to: string
}

/** A listener that was created. */
export interface Listener {
  id: string
  secret: string
}

/** The place of one listener's files. */
export interface Place {
  /** The listener of a run that was killed. */
  left: Listener | undefined
  /** The deliveries that the killed run had started to post. */
  started: Set<string>
  keep(listener: Listener): void
  /** Records that a delivery is about to be posted. */
  start(deliveryId: string): void
  remove(): void
}

/** The place for this run; undefined as long as another running process uses it. */
export function placeOf({ url, apiKey, events, callbacks, to }: Sought): Place | undefined {
  const name = createHash("sha256")
    .update(JSON.stringify([url, apiKey, [...events].sort(), callbacks, to]))
    .digest("hex")
  const file = join(dirname(profilesFile()), "listeners", name.slice(0, 32))
  const kept = read(`${file}.json`) as (Listener & { pid: number }) | undefined
  if (kept && kept.pid !== process.pid && isListening(kept.pid)) return undefined
  return {
    left: kept && { id: kept.id, secret: kept.secret },
    started: new Set(kept ? (readText(`${file}.started`) ?? "").split("\n") : []),
    keep: ({ id, secret }) => {
      mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
      if (id !== kept?.id) writeFileSync(`${file}.started`, "", { mode: 0o600 })
      writeFileSync(`${file}.new`, JSON.stringify({ id, secret, pid: process.pid }), { mode: 0o600 })
      renameSync(`${file}.new`, `${file}.json`)
    },
    start: deliveryId => {
      try {
        appendFileSync(`${file}.started`, `${deliveryId}\n`, { mode: 0o600 })
      } catch {
        // The disk may be full. After a kill, a repeated delivery is then shown as if it were the first.
      }
    },
    remove: () => {
      for (const end of ["json", "started"]) rmSync(`${file}.${end}`, { force: true })
    },
  }
}

/**
 * Whether this process id belongs to a running `sluice listen`. After a restart of the machine, another program may
 * have the id.
 */
function isListening(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    return (error as { code?: string }).code === "EPERM"
  }
  const line = readText(`/proc/${pid}/cmdline`)
  return line === undefined || line.split("\0").includes("listen")
}

function read(file: string): unknown {
  try {
    return JSON.parse(readText(file) ?? "")
  } catch {
    // A new listener is created, as if there were no file.
    return undefined
  }
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8")
  } catch {
    return undefined
  }
}
