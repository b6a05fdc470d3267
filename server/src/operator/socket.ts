/**
 * The Unix socket of the admin server: `admin.sock` in the data folder, for its owner alone (0600). Where that path is too
 * long for a socket, it lies in a folder of its own (0700) that `admin.path` names.
 */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import type { Logger } from "pino"
import { writeFileAtomic } from "../config/data-dir.ts"
import type { Server } from "../http/server.ts"

/** A socket's path has 108 bytes on Linux and 104 on macOS, its end included; longer ones are cut off in silence. */
const LONGEST = 100
const NAME = "admin.sock"
const ELSEWHERE = "admin.path"
/** What is put before the name while a socket is made. */
const MAKING = ".admin-"

/** Where the socket of a data folder is, or would be. */
export function socketPath(dataDir: string): string {
  const elsewhere = join(dataDir, ELSEWHERE)
  return existsSync(elsewhere) ? readFileSync(elsewhere, "utf8").trim() : join(dataDir, NAME)
}

/**
 * Serves `app` on the socket of a data folder, which is made where it is absent; the returned function stops that. A socket
 * that a killed process left behind is taken over, that of a running one is left to it. What goes wrong is logged and no
 * reason not to start: the service works without.
 */
export async function serveOnSocket(app: Server, dataDir: string, log: Logger): Promise<() => Promise<void>> {
  const stop = () => app.close()
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 })
    const path = await placeFor(dataDir)
    if (await answers(path)) {
      log.warn({ path }, "another process serves script/wallet in this data folder; this one does not")
      return stop
    }
    const inode = await listenAt(app, path)
    return async () => {
      await stop()
      // Not where another process has taken the place.
      if (inodeOf(path) === inode) rmSync(path, { force: true })
    }
  } catch (error) {
    log.error({ err: error }, "script/wallet can't be served: its socket can't be made in DATA_DIR")
    return stop
  }
}

/** The path, made ready: what is too long gets a short one, the same as before where there was one. */
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

/** Whether a folder is there, ours, and for nobody else: in a shared one, another could have put it there. */
function isOurs(dir: string): boolean {
  const found = statSync(dir, { throwIfNoEntry: false })
  return found?.isDirectory() === true && found.uid === process.getuid?.() && (found.mode & 0o077) === 0
}

/** Whether a process listens there. */
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
 * Listens, and answers the socket's inode. It is made inside a folder that only we can enter and moved into its place when
 * its permissions are right, so that there is no moment in which others could open it.
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
