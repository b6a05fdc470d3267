/**
 * `sluice backup`: writes a consistent copy of the database to one file, while the service runs. A Postgres database
 * is dumped with `pg_dump`. The embedded database serves one process, so the running service makes its copy, or this
 * command if no service runs.
 */
import { spawn } from "node:child_process"
import { createWriteStream, existsSync, renameSync, rmSync } from "node:fs"
import { open } from "node:fs/promises"
import { type IncomingMessage, request } from "node:http"
import { dirname, join, resolve } from "node:path"
import { Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import type pg from "pg"
import { readDatabaseSettings } from "../../platform/config/command-settings.ts"
import { lockDataDir } from "../../platform/config/data-dir.ts"
import { environmentWith } from "../../platform/config/read-settings.ts"
import { connectClient } from "../../platform/db/hosts.ts"
import { NOTE_BACKUP } from "../../platform/db/last-backup.ts"
import { copyEmbedded } from "../../platform/db/open.ts"
import { socketPath } from "../operator/socket.ts"
import { parseCommandLine, runCommand, UsageError } from "./run-command.ts"

const usage = `Writes a consistent copy of the database to a file, while the service runs.

  sluice backup FILE
  sluice backup --done

  FILE    a file that does not exist yet, or - for the standard output. Only its owner can read it. It contains no
          keys, but it does contain the addresses' terms and encrypted secrets.
  --done  makes no backup, and records in the database of DATABASE_URL that another tool has just made one.

It copies the database of DATABASE_URL, or without that setting the embedded database in DATA_DIR. For Postgres it runs
pg_dump, in the custom format of pg_restore. An embedded database is copied as a tar.gz of its folder; the service answers
no requests meanwhile. docs/operators/operations.md explains how to restore a backup, and how to keep what was written
after it. The database records the time of each backup: the service raises an alarm when the last one is older than
BACKUP_MAX_AGE.

Exits with 0 when the backup is complete, 1 when it failed, 2 for an invalid command line.
`

const STDOUT = "-"

const openFile = (file: string) => (file === STDOUT ? process.stdout : createWriteStream(file))

/** Thrown if no service listens on the socket of the data folder. */
class NoService extends Error {}

/**
 * Makes the backup that the arguments name, and reports it. If the backup fails, throws an Error with a sentence and
 * leaves no file.
 */
async function main(args: string[]): Promise<string | undefined> {
  const { positionals, values } = parseCommandLine(args, {
    allowPositionals: true,
    options: { done: { type: "boolean" } },
  })
  if (values.help) return usage.trimEnd()
  const [file, ...more] = positionals
  if (values.done) return await noteDone(file)
  if (file === undefined || more.length > 0) throw new UsageError("Name one file.")
  const { databaseUrl, dataDir } = readDatabaseSettings()
  const write = (to: string) => (databaseUrl === undefined ? copyOf(dataDir, to) : dump(databaseUrl, to))
  if (file === STDOUT) {
    await write(STDOUT)
    return say("Wrote the backup to the standard output.")
  }
  if (existsSync(file)) throw new UsageError(`${file} exists already. Name a new file.`)
  process.umask(0o077)
  const unfinished = `${resolve(file)}.unfinished`
  try {
    await write(unfinished)
    await sync(unfinished)
    renameSync(unfinished, file)
    await sync(dirname(resolve(file)))
  } finally {
    rmSync(unfinished, { force: true })
  }
  return say(`Wrote ${file}.\nIt is a copy of ${nameOf(databaseUrl, dataDir)}.`)
}

/**
 * Names the database in words, without its password. If settings were not given, the backup may be of another
 * database than the operator meant.
 */
function nameOf(databaseUrl: string | undefined, dataDir: string): string {
  if (databaseUrl === undefined) return `the embedded database in ${resolve(dataDir)}`
  const at = /^postgres(?:ql)?:\/\/(?:[^/?#]*@)?([^?#]*)/.exec(databaseUrl)?.[1]
  return at ? `the Postgres database ${at}` : "the Postgres database of DATABASE_URL"
}

/**
 * Records a backup that another tool made. That backup started at an unknown earlier time, so the current time is
 * recorded.
 */
async function noteDone(file: string | undefined): Promise<string> {
  if (file !== undefined) throw new UsageError("With --done, name no file.")
  const { databaseUrl } = readDatabaseSettings()
  if (databaseUrl === undefined) throw new UsageError("Only `sluice backup FILE` can copy the embedded database.")
  await withClient(databaseUrl, async client => client.query(NOTE_BACKUP, [await timeOf(client)]))
  return "Recorded that a backup was just made."
}

async function withClient<T>(databaseUrl: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = await connectClient(databaseUrl, {
    application_name: "sluice-backup",
    connectionTimeoutMillis: 10_000,
  })
  return await work(client).finally(() => client.end())
}

const timeOf = async (client: pg.Client): Promise<string> =>
  (await client.query<{ now: Date }>("select clock_timestamp() as now")).rows[0]?.now.toISOString() ?? ""

/** Reports go to the standard error, because the standard output may be the backup itself. */
const say = (line: string): undefined => void process.stderr.write(`${line}\n`)

/** Dumps the database, and records when the dump started. If that can't be recorded, the dump is still a backup. */
async function dump(databaseUrl: string, file: string): Promise<void> {
  const begunAt = await withClient(databaseUrl, timeOf)
  await runDump(databaseUrl, file)
  await withClient(databaseUrl, client => client.query(NOTE_BACKUP, [begunAt])).catch((error: Error) =>
    say(`The time of the backup could not be recorded in the database: ${error.message}.`),
  )
}

/** Runs `pg_dump`. The password is not among its arguments, because other users of the machine can read those. */
async function runDump(databaseUrl: string, file: string): Promise<void> {
  // Parsed as text, because `URL` does not support a list of hosts, but `pg_dump` does.
  const [, start = "", password = "", rest = ""] = /^([^:]+:\/\/[^/?#:@]*):([^/?#@]*)(@.*)$/.exec(databaseUrl) ?? []
  const PGPASSWORD = decodeURIComponent(password)
  const address = password === "" ? databaseUrl : start + rest
  const args = ["--format=custom", "--no-password", ...(file === STDOUT ? [] : [`--file=${file}`]), address]
  const child = spawn("pg_dump", args, {
    stdio: ["ignore", "inherit", "inherit"],
    env: environmentWith(PGPASSWORD ? { PGPASSWORD } : {}),
  })
  const code = await new Promise<number | null>((done, fail) => {
    child.once("close", done).once("error", (error: NodeJS.ErrnoException) => {
      const missing = "pg_dump is not installed. Install Postgres' client programs, in the server's version or newer."
      fail(error.code === "ENOENT" ? new Error(missing) : error)
    })
  })
  if (code !== 0) throw new Error("pg_dump failed; its message is above.")
}

/** Copies the embedded database: through the service that uses the folder, or directly if no service does. */
async function copyOf(dataDir: string, file: string): Promise<void> {
  if (!existsSync(join(dataDir, "db")))
    throw new Error(`There is no database in ${dataDir}. Check DATA_DIR and DATABASE_URL.`)
  try {
    await copyFromService(socketPath(dataDir), file)
  } catch (error) {
    if (!(error instanceof NoService)) throw error
    const unlock = lockDataDir(dataDir)
    try {
      const copy = await copyEmbedded(dataDir)
      await pipeline(Readable.fromWeb(copy.stream() as never), openFile(file))
    } finally {
      unlock()
    }
  }
}

async function copyFromService(path: string, file: string): Promise<void> {
  const response = await new Promise<IncomingMessage>((done, fail) => {
    const sent = request({ socketPath: path, path: "/backup" }, done)
    sent.once("error", (error: NodeJS.ErrnoException) => {
      const none = error.code === "ENOENT" || error.code === "ECONNREFUSED"
      fail(none ? new NoService() : new Error(`The service can't be reached at ${path}: ${error.message}`))
    })
    sent.end()
  })
  if (response.statusCode !== 200) throw new Error(`The service answered ${response.statusCode}; its log says why.`)
  await pipeline(response, openFile(file))
}

async function sync(path: string): Promise<void> {
  const entry = await open(path, "r")
  await entry.sync().finally(() => entry.close())
}

/**
 * Runs the command with the arguments of the process, then exits, because an open embedded database would keep the
 * process alive.
 */
export const run = (): Promise<void> => runCommand("backup", main, { failed: "No backup was made.", exits: true })
