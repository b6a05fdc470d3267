/** `sluice trigger`: causes an event in the sandbox by real actions, so that every id in the event exists. */
import { setTimeout as sleep } from "node:timers/promises"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { connect } from "../profiles.ts"
import { recipes } from "../recipes.ts"
import { inSandbox } from "../sandbox.ts"
import { untriggered } from "../triggers.ts"

const WAIT_MS = 120_000
const PAUSE_MS = 2_000

/** Causes the event, waits until the service has recorded it, and prints it. */
export async function run({ args, options, out }: Input): Promise<void> {
  const [event = ""] = args
  const recipe = Object.hasOwn(recipes, event) ? recipes[event as keyof typeof recipes] : undefined
  const reason = Object.hasOwn(untriggered, event) ? untriggered[event] : undefined
  if (reason) throw new Failure(`${event} can't be triggered: ${reason}.`, 2)
  if (!recipe)
    throw new Failure(`${event} can't be triggered. These events can: ${Object.keys(recipes).join(", ")}.`, 2)
  const sluice = connect(options)
  // Checked first, because nothing must be created on a service that is not a sandbox.
  const { now } = await inSandbox(sluice, "clock", { advance: "0s" })
  const metadata = Object.fromEntries(((options.metadata ?? []) as string[]).map(pairOf))
  const wish = { on: options.on as string | undefined, amount: `${options.amount ?? "1.00"}`, metadata }
  const progress = out.progress(`Triggering ${event} ...`)
  try {
    const { object, again } = await recipe(sluice, wish)
    progress.set("it is done, and the event is awaited")
    const query = { type: event, since: `${now}`, ...(object ? { object } : {}) }
    for (const endsAt = Date.now() + WAIT_MS; Date.now() < endsAt; await sleep(PAUSE_MS)) {
      const { data } = (await sluice.events.list(query as never).page({ limit: 1 })) as unknown as { data: object[] }
      if (data[0]) return out.show(data[0])
      await again?.()
    }
    throw new Failure(
      `${event} did not happen within two minutes. Look at \`sluice timeline get ${object ?? "ID"}\`.`,
      4,
    )
  } finally {
    progress.end()
  }
}

function pairOf(text: string): [string, string] {
  const at = text.indexOf("=")
  if (at < 1) throw new Failure(`--metadata ${text} must be NAME=VALUE.`, 2)
  return [text.slice(0, at), text.slice(at + 1)]
}
