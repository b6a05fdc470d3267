/**
 * The program: settings, then the context, then the roles that `--role` names. The program exits with 0 when told to
 * stop, and with 1 and a message if it can't start or continue.
 */
import { createServer, type Server as HttpServer } from "node:http"
import type { Logger } from "pino"
import { tokenIssuer, watchIssuer } from "./account/identity/tokens.ts"
import { connectNetworks, keepNetworks, patiently } from "./connect-networks.ts"
import { ensureCursor } from "./ledger/scanner/scan-round.ts"
import type { SellingContext } from "./ledger/settlement/sellable.ts"
import { parseCommandLine, runCommand, UsageError } from "./operations/cli/run-command.ts"
import { checkSecrets } from "./operations/doctor/check-secrets.ts"
import { checkSigners } from "./operations/doctor/check-signers.ts"
import { isBad } from "./operations/doctor/finding.ts"
import { alarmsNow, watchScans } from "./operations/doctor/list-alarms.ts"
import { standingAlarms } from "./operations/doctor/read-standing-alarms.ts"
import { newestBlockMs } from "./platform/chain/newest-block.ts"
import { sanctionedAddresses } from "./platform/chain/screen-addresses.ts"
import { lockDataDir } from "./platform/config/data-dir.ts"
import { liveWarnings } from "./platform/config/live-mode.ts"
import { describeSettings, readSettings } from "./platform/config/read-settings.ts"
import { isRole, roleFaults } from "./platform/config/role-needs.ts"
import { secretFileNames } from "./platform/config/secret-files.ts"
import { type Settings, SettingsError } from "./platform/config/settings.ts"
import { wrapped } from "./platform/config/wrapped-text.ts"
import { atOnce, type Context, wallTime } from "./platform/context.ts"
import { sharedSlugs } from "./platform/db/check-slugs.ts"
import { claimInstallation } from "./platform/db/claim-installation.ts"
import { claimSecretKey } from "./platform/db/claim-secret-key.ts"
import { type OpenDatabase, openDatabase } from "./platform/db/open.ts"
import { openReplica } from "./platform/db/open-replica.ts"
import { waitForDatabase } from "./platform/db/wait-for-database.ts"
import { openClock, watchClock } from "./platform/db/watch-clock.ts"
import { giveMemoryBack } from "./platform/give-memory-back.ts"
import { openHealthServer } from "./platform/http/open-health-server.ts"
import { openStartupServer, type StartupServer } from "./platform/http/startup-server.ts"
import { freeLeases } from "./platform/jobs/claim.ts"
import { openWakes } from "./platform/jobs/wake.ts"
import { openLimits, processLimits } from "./platform/limits/limiter.ts"
import { openLog, toggleDebug } from "./platform/log.ts"
import { registry } from "./platform/metrics.ts"
import { openShutdown, type Shutdown } from "./platform/shutdown.ts"
import { openTracing } from "./platform/tracing/open-tracing.ts"
import type { Tracing } from "./platform/tracing/tracing.ts"
import { sales } from "./sales.ts"

const usage = `Sluice: stablecoin payments, self-hosted.

  sluice start [--reset] [--role all|api|worker]

  --role   what this process does; all by default. Several processes need DATABASE_URL.
  --reset  wipes the sandbox first.
  --help   this text.

Exits with 0 when it was told to stop, 1 when it can't start or continue, 2 for an invalid command line.

Settings (defaults in parentheses), from the environment and from --env-file FILE:
${describeSettings()}

A secret can be in a file, named by one of these settings:
${wrapped(secretFileNames.join(", "), 116)
  .map(line => `  ${line}`)
  .join("\n")}
`

/** After this time everything that still runs is cut off, because a stop must end. */
const STOP_MS = 20_000
/** The time for sending the last spans. */
const FLUSH_MS = 2_000

/** Undoes one step of the start. Cleanups run in reverse order. */
type Cleanup = () => Promise<unknown> | unknown

async function main(args: string[]): Promise<string | undefined> {
  // Only the process's own user may read the files that it writes (keys, logs, its socket), even in an existing folder.
  process.umask(0o077)
  const { values: flags } = parseCommandLine(args, {
    options: { role: { type: "string", default: "all" }, reset: { type: "boolean" } },
  })
  if (flags.help) return usage.trimEnd()
  const { role } = flags
  if (!isRole(role)) throw new UsageError("--role must be all, api or worker.")
  const given = readSettings()
  const lacking = roleFaults(given, role)
  if (lacking.length > 0) throw new SettingsError(lacking)
  if (flags.role !== "all" && given.databaseUrl === undefined)
    throw new Error("--role api and --role worker need DATABASE_URL: the embedded database serves one process.")
  if (flags.role !== "all" && given.mode === "sandbox") throw new Error("The sandbox is one process: --role all.")
  if (flags.reset && given.mode !== "sandbox") throw new Error("--reset wipes a sandbox; MODE is not sandbox.")

  for (const { level, message } of checkSecrets(given)) if (level === "fault") throw new Error(`${message}.`)

  const tracing = await openTracing(given.tracing, (isFailing, words) =>
    isFailing ? log.warn({ reason: words }, "spans can't be exported") : log.info(words),
  )
  const log = openLog(given.logLevel, undefined, tracing?.logFields)
  const shutdown = openShutdown()
  // Runs last, after everything that ends a span.
  const cleanups: Cleanup[] = tracing ? [() => tracing.close(FLUSH_MS)] : []
  const failed = Promise.withResolvers<never>()
  for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => shutdown.onSignal(name))
  process.on("SIGUSR2", () => toggleDebug(log, given.logLevel))
  try {
    const start = { given, flags, log, tracing, shutdown, cleanups, fail: failed.reject }
    await Promise.race([serve(start), failed.promise])
  } catch (error) {
    if (!shutdown.stopping.aborted) {
      shutdown.stop("failure")
      throw error
    }
  } finally {
    const lastResort = setTimeout(() => process.exit(1), STOP_MS)
    for (const cleanup of cleanups.reverse())
      await Promise.resolve(cleanup()).catch(error => log.error({ err: error }, "stopping"))
    clearTimeout(lastResort)
  }
  return undefined
}

/** The values that the steps of a start share. */
interface Start {
  given: Settings
  flags: { role: string; reset?: boolean | undefined }
  log: Logger
  tracing: Tracing | undefined
  shutdown: Shutdown
  cleanups: Cleanup[]
  /** Ends the process, because an essential part has failed. */
  fail: (error: Error) => void
}

async function serve(start: Start): Promise<void> {
  const { given, flags, log, shutdown, cleanups } = start
  const { stopping: signal, draining } = shutdown
  if (given.databaseUrl === undefined || given.mode === "sandbox") cleanups.push(lockDataDir(given.dataDir))
  const isWorker = flags.role === "worker"
  const port = isWorker ? given.healthPort : given.port
  const startup =
    port === undefined
      ? undefined
      : await openStartupServer({ host: given.host, port }, isWorker ? "HEALTH_PORT" : "PORT")
  if (startup) cleanups.push(() => startup.close())
  const sandbox = given.mode === "sandbox" ? await startSandbox(start) : undefined
  const settings = sandbox?.settings ?? given
  const { ctx, database } = await openContext(start, settings, startup, sandbox?.now)
  await checkBeforeWork(ctx, flags.role)
  const standing = standingAlarms(ctx, !isWorker)
  const tokens = tokenIssuer(settings.oidcIssuer, settings.oidcAudience, () => wallTime(ctx))
  if (port !== undefined) {
    const app = isWorker
      ? openHealthServer(ctx, () => alarmsNow(ctx, standing.alarms()), draining)
      : (await import("./app.ts")).openApp(ctx, tokens, undefined, draining, standing.alarms)
    await sandbox?.extend(app, ctx)
    await startup?.close()
    await app.listen({ host: settings.host, port })
    cleanups.push(() => app.close())
    if (!isWorker) shutdown.drainFor(settings.drainMs)
  }
  void standing.watch()
  void watchScans(ctx)
  // If merchants sign in only with wallets, there is no issuer to ask.
  if (!isWorker && settings.oidcIssuer !== settings.baseUrl) void watchIssuer(tokens, log, signal)
  if (flags.role !== "api") cleanups.push(await serveOperator(ctx, database))
  if (settings.metricsPort !== undefined) cleanups.push(await serveMetrics(settings.metricsHost, settings.metricsPort))
  if (flags.role !== "api") {
    const { runWorker } = await import("./worker.ts")
    // The worker ends within one round after the signal. The database is closed after that.
    const running = runWorker({ ...ctx, db: database.background })
    cleanups.push(() => running)
  }
  await sandbox?.announce(ctx)
  giveMemoryBack(signal)
  if (settings.mode === "live") for (const warning of liveWarnings(settings, flags.role)) log.warn(warning)
  log.info({ mode: settings.mode, role: flags.role, baseUrl: settings.baseUrl }, "started")
  await aborted(signal)
  log.info({ reason: signal.reason }, "stopping")
}

/**
 * Starts the sandbox. Throws an error with a sentence for the user if the sandbox's packages are not installed, as in
 * the package for operators.
 */
async function startSandbox({ given, log, flags, cleanups, fail }: Start) {
  const { startSandbox } = await import("./operations/sandbox/start.ts").catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ERR_MODULE_NOT_FOUND") throw error
    throw new Error(
      "MODE is sandbox, but this installation has no sandbox: it is part of the sources (script/server). Set MODE to test or live.",
    )
  })
  return await startSandbox(given, log, { reset: flags.reset ?? false, cleanups, fail })
}

/** Connects to everything that the service needs: the migrated database, the networks, the limits. */
async function openContext(
  { flags, log, tracing, shutdown, cleanups, fail }: Start,
  settings: Settings,
  startup: StartupServer | undefined,
  sandboxNow: Context["now"] | undefined,
): Promise<{ ctx: SellingContext; database: OpenDatabase }> {
  const signal = shutdown.stopping
  if (settings.sanctionsFile !== undefined && !sanctionedAddresses(settings.sanctionsFile))
    throw new Error(`SANCTIONS_FILE ${settings.sanctionsFile} can't be read, or contains no address.`)
  if (settings.databaseUrl !== undefined) {
    startup?.setPhase("the database can't be reached yet")
    await waitForDatabase(settings.databaseUrl, log, signal)
  }
  startup?.setPhase("the database is being migrated")
  const onError = (error: Error) => log.warn({ err: error }, "a database connection broke")
  const database = await openDatabase(settings, onError, sentence => log.info(sentence))
  cleanups.push(() => database.close())
  startup?.setPhase("the networks are being connected")
  const clock =
    settings.databaseUrl === undefined
      ? undefined
      : await openClock(database.background, { newestBlockMs: () => newestBlockMs(settings.networks, signal) })
  if (clock) void watchClock(clock, log, signal)
  const { db } = database
  const isApi = flags.role === "api"
  const networks = await connectNetworks({ db, settings, log, signal, isApi, fail })
  const installation = await claimInstallation(db, settings.mode, networks)
  for (const tried of await claimSecretKey(db, settings.secretKeys))
    log.warn(
      tried,
      "some secrets of a table can't be decrypted with SECRET_KEY: docs/operators/operations.md (SECRET_KEY)",
    )
  if (isApi) await keepNetworks(db, settings, networks)
  for (const shared of await sharedSlugs(database.db))
    log.warn(shared, "a paywall and a payment link have the same slug: rename the paywall's")
  const { redisUrl } = settings
  const limits = flags.role === "worker" ? processLimits() : await openLimits({ redisUrl, installation }, log)
  cleanups.push(() => limits.close())
  const wakes = await openWakes(database)
  const replica =
    settings.replica && flags.role !== "worker" ? openReplica(settings.replica, database.db, log) : undefined
  cleanups.push(() => replica?.close())
  const ctx = {
    db: database.db,
    replica,
    settings,
    log,
    now: sandboxNow ?? clock?.now ?? (() => new Date()),
    clock,
    chain: { networks },
    wakes,
    limits,
    sells: sales,
    onCommit: atOnce,
    tracing,
    signal,
  }
  return { ctx, database }
}

/** Serves `sluice wallet` on a socket. As elsewhere, code that only one role needs is loaded only in that role. */
async function serveOperator(ctx: Context, { copy }: OpenDatabase): Promise<Cleanup> {
  const { openAdmin } = await import("./operations/operator/open-admin.ts")
  const { serveOnSocket } = await import("./operations/operator/socket.ts")
  return await serveOnSocket(openAdmin(ctx, copy), ctx.settings.dataDir, ctx.log)
}

/** Checks everything that must hold before a payment is expected or a transaction signed. */
async function checkBeforeWork(ctx: Context, role: string): Promise<void> {
  const { settings, log, signal } = ctx
  const { networks } = ctx.chain
  // Runs before any address is shown: the scan then covers every later payment, whenever the first worker starts.
  for (const network of networks) await patiently(() => ensureCursor(ctx, network), log, signal)
  if (role !== "api") await checkWallets(ctx)
  // A killed process can't release its leases. If it was the only process, nobody else holds a lease.
  if (settings.databaseUrl === undefined) await freeLeases(ctx.db)
}

async function checkWallets(ctx: Context): Promise<void> {
  const { settings, log, signal } = ctx
  const { lanesOf } = await import("./lanes.ts")
  const { checkWallet } = await import("./ledger/txmanager/lock-wallet.ts")
  const lanes = ctx.chain.networks.flatMap(network => lanesOf(settings, network))
  // Not awaited, because the start does not wait for signers. Work that needs no signer continues, and payouts wait
  // with an alarm.
  if (lanes.length > 0)
    void checkSigners(settings, signal).then(found => {
      for (const { message, todo } of found.filter(isBad)) if (!signal.aborted) log.error({ todo }, message)
    })
  // Runs before anything is signed. With an old backup of the database, the service would repeat all payouts that were
  // made after the backup.
  for (const lane of lanes) await patiently(() => checkWallet(ctx, lane), log, signal)
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise(resolve =>
    signal.aborted ? resolve() : signal.addEventListener("abort", () => resolve(), { once: true }),
  )

async function serveMetrics(host: string, port: number): Promise<Cleanup> {
  const server = createServer((request, response) => {
    if (request.method !== "GET" || request.url !== "/metrics") return void response.writeHead(404).end()
    registry.metrics().then(
      text => response.writeHead(200, { "content-type": registry.contentType }).end(text),
      () => response.writeHead(500).end(),
    )
  })
  await listen(server, host, port)
  return () => new Promise(resolve => server.close(resolve))
}

const listen = (server: HttpServer, host: string, port: number): Promise<void> =>
  new Promise((resolve, reject) => server.once("error", reject).listen(port, host, resolve))

/**
 * Runs the program with the process's arguments, then exits the process. Anything that still keeps the event loop busy
 * (an idle kept-alive connection to a node) is not worth waiting for.
 */
export const run = (): Promise<void> => runCommand("start", main, { failed: "Sluice can't run.", exits: true })

if (import.meta.main) void run()
