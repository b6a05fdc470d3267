/**
 * What a buyer keeps on this machine: a key that only its owner can read, and a record of what it has spent and is
 * paying.
 */
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, statSync, writeSync } from "node:fs"
import { DatabaseSync } from "node:sqlite"
import { setTimeout as sleep } from "node:timers/promises"
import type { BuyerStore } from "../../../sdk/src/buyer/buyer.ts"
import { Failure } from "../failure.ts"
import { readSecret } from "../keyring.ts"

const KEY = /^(0x)?[0-9a-fA-F]{64}$/
const PAUSE_MS = 50
/** How long to wait for the lock: as long as the payment of another process may take. */
const MAX_WAIT_MS = 150_000

/**
 * Reads the private key in a file; throws a {@link Failure} if other users can read the file. The key appears in no
 * message.
 */
export function readWalletKey(file: string): `0x${string}` {
  const how = `Write into it the private key of a wallet with no more money than you can lose: (umask 077; cat > ${file})`
  let text: string
  try {
    if (process.platform !== "win32" && (statSync(file).mode & 0o077) !== 0)
      throw new Failure(`Other users can read ${file}, which holds a key. Run \`chmod 600 ${file}\`.`, 3)
    text = readFileSync(file, "utf8").trim()
  } catch (error) {
    if (error instanceof Failure) throw error
    throw new Failure(`${file} can't be read. ${how}`, 3)
  }
  if (!KEY.test(text)) throw new Failure(`${file} does not contain a private key (64 hexadecimal digits). ${how}`, 3)
  return `0x${text.replace(/^0x/, "")}`
}

/**
 * Reads the private key of an account in the system's keyring, under the service `sluice`. Throws a {@link Failure}
 * if the keyring does not return a key.
 */
export function readKeyringKey(account: string): `0x${string}` {
  const text = readSecret(account) ?? ""
  if (KEY.test(text)) return `0x${text.replace(/^0x/, "")}`
  throw new Failure(
    `The system's keyring returns no private key for the service sluice and the account ${account}. Store the key there, or unlock the keyring.`,
    3,
  )
}

/**
 * A store in a file. Each change is on disk before it counts, because a payment whose nonce is lost could be made
 * twice.
 */
export function fileStore(file: string): BuyerStore & { all(): Record<string, string> } {
  const all = (): Record<string, string> => {
    try {
      return JSON.parse(readFileSync(file, "utf8"))
    } catch (error) {
      if ((error as { code?: string }).code === "ENOENT") return {}
      throw new Failure(
        `${file} can't be read, and it records what was spent and what is being paid: ${(error as Error).message}`,
      )
    }
  }
  const write = (kept: Record<string, string>) => {
    const opened = openSync(`${file}.new`, "w", 0o600)
    writeSync(opened, `${JSON.stringify(kept, undefined, 1)}\n`)
    fsyncSync(opened)
    closeSync(opened)
    renameSync(`${file}.new`, file)
  }
  return {
    all,
    get: name => all()[name],
    set: (name, value) => write({ ...all(), [name]: value }),
    delete: name => {
      const { [name]: _, ...others } = all()
      write(others)
    },
  }
}

/**
 * Runs one task at a time among all processes that use this file. SQLite holds a lock of the operating system, which
 * is released however its process ends. Throws a {@link Failure} if another process does not release the lock in
 * time.
 */
export function lockOf(file: string): <T>(work: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve()
  const locked = async <T>(work: () => Promise<T>): Promise<T> => {
    const database = new DatabaseSync(file)
    try {
      for (const endsAt = Date.now() + MAX_WAIT_MS; !tryLock(database); await sleep(PAUSE_MS))
        if (Date.now() > endsAt) throw new Failure("Another process is paying with this wallet. Try again later.", 4)
      return await work()
    } finally {
      database.close()
    }
  }
  return async work => {
    const mine = last.then(
      () => locked(work),
      () => locked(work),
    )
    last = mine.catch(() => {})
    return await mine
  }
}

function tryLock(database: DatabaseSync): boolean {
  try {
    database.exec("begin exclusive")
    return true
  } catch (error) {
    if (/locked/.test((error as Error).message)) return false
    throw error
  }
}
