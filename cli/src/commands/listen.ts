/** `sluice listen`: delivers events to a receiver on this machine, through a listener whose deliveries are pulled. */
import { hostname } from "node:os"
import { SluiceError } from "../../../sdk/src/errors.ts"
import { eventNames } from "../../../sdk/src/resources.ts"
import type { Sluice } from "../../../sdk/src/sluice.ts"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { forward, type Result, type Target, targetOf } from "../listen/forward.ts"
import { type Listener, type Place, placeOf } from "../listen/kept-listeners.ts"
import { shownOf } from "../listen/print-delivery.ts"
import { type Pulled, pullDeliveries } from "../listen/pull-deliveries.ts"
import { openReporter } from "../listen/report-results.ts"
import { runCommand } from "../listen/run-command.ts"
import { connect, credentialOf } from "../profiles.ts"

/** How long work in progress may take when the command is stopped. */
const END_MS = 5_000
/** The events that a listener can have. Pings are not among them, because each goes to a single endpoint. */
const names: readonly string[] = eventNames.filter(name => name !== "ping")

interface Listening {
  listener: Listener
  place: Place | undefined
  target: Target | undefined
  /** How many deliveries waited while the listener was not running. */
  backlog: number
  /** Aborted when the command must end. */
  left: AbortController
}

/**
 * Posts each delivery and reports the answer, until the command is stopped or the program of `--exec` has ended. Both
 * end the listener. Throws a {@link Failure} if someone else ended the listener.
 */
export async function run(input: Input): Promise<void> {
  const { options, out } = input
  const { forwardTo } = options as { forwardTo?: string }
  if (forwardTo === undefined && !options.print)
    throw new Failure("Say where events go: --forward-to localhost:3000/webhooks, or --print.", 2)
  const target = forwardTo === undefined ? undefined : targetOf(forwardTo, !options.skipVerifyTls)
  const events = eventsOf(options.events as string | undefined)
  const sluice = connect(options)
  const { baseUrl: url, apiKey = "" } = credentialOf(options)
  const callbacks = options.callbacks === true
  const to = target?.url.href ?? "--print"
  const place = placeOf({ url, apiKey, events, callbacks, to })
  const isResumed = await isOpen(sluice, place?.left)
  const listener =
    isResumed && place?.left
      ? place.left
      : await sluice.listeners.create({ events, callbacks, description: `sluice listen on ${hostname()}` } as never)
  const isKept = keep(place, listener)
  const backlog = isResumed && !out.isJson ? await backlogOf(sluice, listener) : 0
  const { id, secret } = listener
  if (out.isJson) out.show({ listenerId: id, secret, resumed: isResumed, events, to })
  else {
    out.show(
      `${isResumed ? "Resumed" : "Created"} the listener ${id}. Events are ${target ? `posted to ${to}` : "printed"}.\nVerify them with the secret ${secret}`,
    )
    if (!isKept)
      out.note(
        "If this command is killed, the next one creates a new listener, because nothing is stored on this machine.",
      )
  }
  const kept = isKept ? place : undefined
  await listen(input, sluice, { listener, place: kept, target, backlog, left: new AbortController() })
}

function eventsOf(list: string | undefined): string[] {
  if (list === undefined) return [...names]
  const events = list.split(",").map(name => name.trim())
  const unknown = events.find(name => !names.includes(name))
  if (unknown !== undefined)
    throw new Failure(`There is no event named ${unknown}. Choose from these: ${names.join(", ")}.`, 2)
  return events
}

async function isOpen(sluice: Sluice, left: Listener | undefined): Promise<boolean> {
  if (!left) return false
  const { data } = await sluice.listeners.list().page({ limit: 100 })
  return data.some(({ id }) => id === left.id)
}

/** How many deliveries wait for the listener; 1,500 if there are more. */
async function backlogOf(sluice: Sluice, { id }: Listener): Promise<number> {
  const query = { webhookId: id, status: "pending" }
  return (await sluice.deliveries.list(query as never).page({ limit: 1 })).total
}

/** A bar for the deliveries that waited, which disappears after the last of them. If none waited, there is no bar. */
function barOf(out: Input["out"], backlog: number): { count(): void; end(): void } {
  const bar = backlog > 0 ? out.progress("Events that waited") : undefined
  let done = 0
  bar?.set(done, backlog)
  return {
    count: () => {
      if (done >= backlog) return
      bar?.set(++done, backlog)
      if (done === backlog) bar?.end()
    },
    end: () => {
      if (done < backlog) bar?.end()
    },
  }
}

/**
 * Stores the listener on this machine, and returns whether that worked. A folder that can't be written is no reason
 * not to listen.
 */
function keep(place: Place | undefined, listener: Listener): boolean {
  try {
    place?.keep(listener)
    return place !== undefined
  } catch {
    return false
  }
}

async function listen({ options, out }: Input, sluice: Sluice, listening: Listening): Promise<void> {
  const { listener, place, left } = listening
  const { baseUrl, apiKey = "" } = credentialOf(options)
  const started = place?.started ?? new Set<string>()
  const reporter = openReporter(
    async results => await sluice.listeners.report(listener.id, results as never),
    ({ message }) => out.note(`The service did not accept a result: ${message}`),
  )
  const cut = new AbortController()
  const bar = barOf(out, listening.backlog)
  const handle = async (pulled: Pulled) => {
    const isRepeat = started.has(pulled.deliveryId)
    started.add(pulled.deliveryId)
    if (!isRepeat) place?.start(pulled.deliveryId)
    const result = listening.target ? await forward(listening.target, pulled, cut.signal) : printedOf(pulled)
    const shown = shownOf(pulled, result, { isJson: out.isJson, hasBody: options.print === true, isRepeat })
    out.show(shown)
    reporter.add(result)
    bar.count()
  }
  const running = new Set<Promise<void>>()
  const restore = stopOnSignals(() => {
    out.note(`Ending ${listener.id} ...`)
    left.abort()
  })
  let endCommand: (() => void) | undefined
  const opened = () => {
    if (typeof options.exec === "string") endCommand ??= startCommand(options.exec, listening, out.isJson)
  }
  const broke = (reason: string) => out.note(`Connecting again: ${reason}`)
  try {
    const source = { baseUrl, apiKey, listenerId: listener.id, signal: left.signal, opened, broke }
    for await (const pulled of pullDeliveries(source)) {
      const work: Promise<void> = handle(pulled).finally(() => running.delete(work))
      running.add(work)
    }
    if (!left.signal.aborted) throw ended(place)
  } catch (error) {
    throw error instanceof SluiceError && error.status === 404 ? ended(place) : error
  } finally {
    bar.end()
    endCommand?.()
    const timer = setTimeout(() => cut.abort(), END_MS)
    await Promise.all(running)
    await reporter.settle(END_MS)
    clearTimeout(timer)
    if (left.signal.aborted) await end(sluice, listening, out.note)
    restore()
  }
}

const printedOf = ({ deliveryId, attempt }: Pulled): Result => ({
  deliveryId,
  attempt,
  durationMs: 0,
  status: 200,
  answer: "printed by `sluice listen`",
})

function startCommand(command: string, { listener: { secret }, left }: Listening, isJson: boolean): () => void {
  return runCommand(command, {
    secret,
    isJson,
    ended: code => {
      process.exitCode = code
      left.abort()
    },
  })
}

/**
 * The first signal stops the command, and a second one ends the process immediately. Returns a function that removes
 * the handlers.
 */
function stopOnSignals(stop: () => void): () => void {
  let isStopping = false
  const heard = () => {
    if (isStopping) process.exit(130)
    isStopping = true
    stop()
  }
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, heard)
  return () => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.off(signal, heard)
  }
}

async function end(sluice: Sluice, { listener, place }: Listening, note: (text: string) => void): Promise<void> {
  place?.remove()
  await sluice.listeners.delete(listener.id, { timeoutMs: END_MS, maxRetries: 0 }).catch((error: Error) => {
    note(`${listener.id} could not be ended. It ends automatically in ten minutes: ${error.message}`)
  })
}

function ended(place: Place | undefined): Failure {
  place?.remove()
  return new Failure(
    "The listener has ended: someone ended it, or nothing pulled from it for ten minutes. Run this command again: it will print a new secret.",
    4,
  )
}
