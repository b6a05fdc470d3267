/**
 * The Unix socket of the admin server: `admin.sock` in the data folder, which only its owner can access (0600). If
 * that path is too long for a socket, the socket is in a separate folder (0700), whose path is in `admin.path`.
 */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import type { Logger } from "pino"
import { writeFileAtomic } from "../../platform/config/data-dir.ts"
import type { Server } from "../../platform/http/server.ts"

/**
 * The longest path for a socket. A path can have at most 108 bytes on Linux and 104 on macOS, including its
 * terminator. Longer paths are silently truncated.
 */
const LONGEST = 100
const NAME = "admin.sock"
const ELSEWHERE = "admin.path"
/** The prefix of the folder in which a socket is created. */
const MAKING = ".admin-"

/** The path of a data folder's socket, whether the socket exists or not. */
export function socketPath(dataDir: string): string {
  const elsewhere = join(dataDir, ELSEWHERE)
  return existsSync(elsewhere) ? readFileSync(elsewhere, "utf8").trim() : join(dataDir, NAME)
}

/**
 * Serves `app` on the socket of a data folder, which is created if necessary. The returned function stops serving. A
 * socket that a killed process left behind is replaced, but not one of a running process. Problems are logged and do
 * not prevent the start, because the service works without the socket.
 */
export async function serveOnSocket(app: Server, dataDir: string, log: Logger): Promise<() => Promise<void>> {
  const stop = () => app.close()
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 })
    const path = await placeFor(dataDir)
    if (await answers(path)) {
      log.warn({ path }, "another process serves sluice wallet in this data folder; this one does not")
      return stop
    }
    const inode = await listenAt(app, path)
    return async () => {
      await stop()
      // The socket is removed only if no other process has replaced it.
      if (inodeOf(path) === inode) rmSync(path, { force: true })
    }
  } catch (error) {
    log.error({ err: error }, "sluice wallet can't be served: its socket can't be created in DATA_DIR")
    return stop
  }
}

/**
 * Prepares the path for the socket and returns it. If the usual path is too long, a short one is used, if possible
 * the same as last time.
 */
async function placeFor(dataDir: string): Promise<string> {
  const usual = join(dataDir, NAME)
  const elsewhere = join(dataDir, ELSEWHERE)
  if (Buffer.byteLength(join(dataDir, `${MAKING}XXXXXX`, "s")) <= LONGEST) {
    rmSync(elsewhere, { force: true })
    return usual
  }
  const before = existsSync(elsewhere) ? socketPath(dataDir) : undefined
  if (before !== undefined && isOurs(dirname(before))) return before
  const path = join(mkdtempSync(join(tmpdir(), "sluice-")), NAME)
  await writeFileAtomic(elsewhere, `${path}\n`, 0o600)
  return path
}

/**
 * Whether a folder exists, is ours, and is closed to other users. In a shared folder, another user could have created
 * it.
 */
function isOurs(dir: string): boolean {
  const found = statSync(dir, { throwIfNoEntry: false })
  return found?.isDirectory() === true && found.uid === process.getuid?.() && (found.mode & 0o077) === 0
}

/** Whether a process listens on the socket. */
const answers = (path: string): Promise<boolean> =>
  new Promise(resolve => {
    const socket = connect(path)
    socket.once("connect", () => {
      socket.destroy()
      resolve(true)
    })
    socket.once("error", () => resolve(false))
  })

/**
 * Listens, and returns the socket's inode. The socket is created inside a folder that only we can enter, and is moved
 * to its final path once its permissions are right. So other users can't open it at any time.
 */
async function listenAt(app: Server, path: string): Promise<number | undefined> {
  await app.ready()
  const making = mkdtempSync(join(dirname(path), MAKING))
  try {
    const made = join(making, "s")
    await new Promise<void>((resolve, reject) => app.server.once("error", reject).listen(made, resolve))
    chmodSync(made, 0o600)
    renameSync(made, path)
  } finally {
    rmSync(making, { recursive: true, force: true })
  }
  return inodeOf(path)
}

const inodeOf = (path: string): number | undefined => statSync(path, { throwIfNoEntry: false })?.ino
