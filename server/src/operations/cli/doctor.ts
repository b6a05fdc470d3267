/**
 * `sluice doctor`: checks every setting and every part of an installation, and says what to do. The command changes
 * nothing.
 */
import type pg from "pg"
import { examineSettings } from "../../platform/config/read-settings.ts"
import { isRole, type Role } from "../../platform/config/role-needs.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { connectClient } from "../../platform/db/hosts.ts"
import type { Query } from "../doctor/check-database.ts"
import { type Finding, isBad } from "../doctor/finding.ts"
import { checkAll } from "../doctor/run-checks.ts"
import { findingsText } from "./print-findings.ts"
import { parseCommandLine, runCommand, UsageError } from "./run-command.ts"

const usage = `Checks the settings and everything they refer to, and says what to do about each problem. It changes nothing.

  sluice doctor [--role all|api|worker] [--json]

  --role   the role of the process that has these settings; all by default. --role api needs no wallet's key.
  --json   the findings for programs: { ok, findings: [{ part, check, level, message, todo }] }
  --help   this text

Run this command with the service's environment variables. The service does not have to run, but BASE_URL answers only
while it runs.

  fault    the service does not start with these settings
  alarm    the service starts, and /readyz shows the alarm until it is fixed
  note     worth knowing

Exits with 0 when there is no fault and no alarm, with 1 when there is one, and with 2 for an invalid command line.
`

const CONNECT_MS = 5_000
const STATEMENT_MS = 5_000
const WIDTH = 100

/** Runs all checks with these environment variables, by default with those of the process. */
export async function examine(env?: Record<string, string | undefined>, role: Role = "all"): Promise<Finding[]> {
  const { settings, ...wrong } = examineSettings(env)
  const database = databaseOf(settings)
  try {
    const signal = new AbortController().signal
    return await checkAll({ settings, query: database?.query, now: () => new Date(), signal }, wrong, role)
  } finally {
    await database?.close()
  }
}

/**
 * Opens one connection when the first statement runs. The database is not opened as the service opens it, because
 * that would migrate the database.
 */
function databaseOf({ databaseUrl }: Settings): { query: Query; close: () => Promise<void> } | undefined {
  if (databaseUrl === undefined) return undefined
  let connecting: Promise<pg.Client> | undefined
  const options = {
    application_name: "sluice-doctor",
    connectionTimeoutMillis: CONNECT_MS,
    query_timeout: STATEMENT_MS,
  }
  return {
    query: async text => {
      connecting ??= connectClient(databaseUrl, options)
      return (await (await connecting).query(text)).rows
    },
    close: async () => void (await connecting?.then(client => client.end()).catch(() => {})),
  }
}

async function main(args: string[]): Promise<string> {
  const { values } = parseCommandLine(args, {
    options: { json: { type: "boolean" }, role: { type: "string", default: "all" } },
  })
  if (values.help) return usage.trimEnd()
  if (!isRole(values.role)) throw new UsageError("--role must be all, api or worker.")
  const findings = await examine(undefined, values.role)
  const ok = !findings.some(isBad)
  const { isTTY, columns } = process.stdout
  process.exitCode = ok ? 0 : 1
  return values.json
    ? JSON.stringify({ ok, findings: findings.map(({ isWatched: _, ...rest }) => rest) }, undefined, 2)
    : findingsText(findings, { width: Math.min(columns ?? WIDTH, WIDTH), coloured: isTTY === true })
}

/**
 * Runs the command with the arguments of the process, then exits, because open connections to nodes are not worth
 * waiting for.
 */
export const run = (): Promise<void> => runCommand("doctor", main, { exits: true })
