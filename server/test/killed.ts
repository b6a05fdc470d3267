/** Processes that are killed while Postgres keeps them waiting: at which statement is up to the lock that a test holds. */
import type { ChildProcess } from "node:child_process"
import { once } from "node:events"
import { sql } from "kysely"
import pg from "pg"
import type { Db } from "../src/platform/db/open.ts"
import { until } from "./e2e/program.ts"

/** Kills a process, if it still runs, and waits for its end. */
export async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, "exit")
  child.kill("SIGKILL")
  await ended
}

/** A session that holds what a statement locks, until it is let go. */
export async function hold(url: string, statement: string): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query("begin")
  await client.query(statement)
  return async () => {
    await client.query("rollback")
    await client.end()
  }
}

/** Waits until a worker is kept waiting; resolves with the server's process of its connection. */
export async function waiting(db: Db): Promise<number> {
  let pid: number | undefined
  await until("a worker waits for the lock", async () => {
    const { rows } = await sql<{ pid: number }>`select pid from pg_stat_activity
      where wait_event_type = 'Lock' and application_name ~ '^sluice'`.execute(db)
    pid = rows[0]?.pid
    return pid !== undefined
  })
  return pid ?? 0
}

/** Waits until the server has carried out what it was asked on a connection whose process is gone. */
export const ended = (db: Db, pid: number): Promise<void> =>
  until("the server has carried out what it was asked", async () => {
    const { rows } = await sql`select from pg_stat_activity where pid = ${pid}`.execute(db)
    return rows.length === 0
  })
