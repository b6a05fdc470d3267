/** `sluice trigger`: makes an event happen in the sandbox, so that every id in it exists. */
import { setTimeout as sleep } from "node:timers/promises"
import type { Input } from "../command.ts"
import type { triggered } from "../commands.ts"
import { Failure } from "../failure.ts"
import { connect } from "../profiles.ts"
import { inSandbox, passEnd, payCheckout } from "../sandbox.ts"

const WAIT_MS = 120_000
const PAUSE_MS = 2_000
const BLOCKS = 12
/** The shortest time to pay that a checkout may have, in seconds. */
const SHORTEST_S = 300

type Connected = ReturnType<typeof connect>
interface Wish {
  on: string | undefined
  amount: string
  metadata: Record<string, string>
}

type Event = (typeof triggered)[number]

/** Each event: what is done, which returns the id that the event is about. */
const recipes: Record<Event, (sluice: Connected, wish: Wish) => Promise<string | undefined>> = {
  "checkout.session.completed": async (sluice, wish) => await paid(sluice, wish),
  "checkout.confirmed": async (sluice, wish) => await paid(sluice, wish),
  "checkout.expired": async (sluice, { on, amount, metadata }) => {
    const checkout = on
      ? await sluice.checkouts.get(on)
      : await sluice.checkouts.create({ amount, metadata, expiresIn: SHORTEST_S })
    await passEnd(sluice, checkout)
    // It expires once every block up to its end is final enough to be read.
    await inSandbox(sluice, "mine", { blocks: BLOCKS })
    return checkout.id
  },
  "payment.exception": async (sluice, wish) => {
    const id = await checkoutOf(sluice, wish)
    await payCheckout(sluice, id, { twice: true, buyer: 0 })
    // The event is about the payment, which has an id of its own.
    return undefined
  },
  "settings.webhook_changed": async sluice => {
    const { id } = (await sluice.webhooks.create({
      url: `${sluice.baseUrl}/sandbox/inbox/trigger`,
      events: ["checkout.confirmed"],
    } as never)) as { id: string }
    await sluice.webhooks.delete(id)
    return undefined
  },
  ping: async (sluice, { on }) => {
    if (!on) throw new Failure("--on names the webhook that gets the ping.", 2)
    await sluice.webhooks.test(on)
    return undefined
  },
}

/** Makes the event happen, waits until the service has recorded it, and prints it. */
export async function run({ args, options, out }: Input): Promise<void> {
  const [event = ""] = args
  const recipe = Object.hasOwn(recipes, event) ? recipes[event as Event] : undefined
  if (!recipe) throw new Failure(`${event} can't be triggered. These can: ${Object.keys(recipes).join(", ")}.`, 2)
  const sluice = connect(options)
  // Asked first: nothing must be made on a service that is no sandbox.
  const { now } = await inSandbox(sluice, "clock", { advance: "0s" })
  const metadata = Object.fromEntries(((options.metadata ?? []) as string[]).map(pairOf))
  out.note(`Making ${event} happen ...`)
  const object = await recipe(sluice, {
    on: options.on as string | undefined,
    amount: `${options.amount ?? "1.00"}`,
    metadata,
  })
  const query = { type: event, since: `${now}`, ...(object ? { object } : {}) }
  for (const endsAt = Date.now() + WAIT_MS; Date.now() < endsAt; await sleep(PAUSE_MS)) {
    const { data } = (await sluice.events.list(query as never).page({ limit: 1 })) as unknown as { data: object[] }
    if (data[0]) return out.show(data[0])
  }
  throw new Failure(`${event} has not happened in two minutes. Look at \`sluice timeline get ${object ?? "ID"}\`.`, 4)
}

const checkoutOf = async ({ checkouts }: Connected, { on, amount, metadata }: Wish): Promise<string> =>
  on ?? (await checkouts.create({ amount, metadata })).id

async function paid(sluice: Connected, wish: Wish): Promise<string> {
  const id = await checkoutOf(sluice, wish)
  await payCheckout(sluice, id, { buyer: 0 })
  return id
}

function pairOf(text: string): [string, string] {
  const at = text.indexOf("=")
  if (at < 1) throw new Failure(`--metadata ${text} must be NAME=VALUE.`, 2)
  return [text.slice(0, at), text.slice(at + 1)]
}
