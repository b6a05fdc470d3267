/** How each event is made to happen in the sandbox, by real payments on its chain. */
import { setTimeout as sleep } from "node:timers/promises"
import type { triggered } from "./commands.ts"
import { Failure } from "./failure.ts"
import type { connect } from "./profiles.ts"
import { inSandbox, passEnd, payCheckout } from "./sandbox.ts"

const BLOCKS = 12
/** The shortest time to pay that a checkout may have, in seconds. */
const SHORTEST_S = 300
const PAUSE_MS = 1_000
const WAIT_MS = 120_000

type Connected = ReturnType<typeof connect>

/** What the caller asked for. */
export interface Wish {
  on: string | undefined
  amount: string
  metadata: Record<string, string>
}

/** What was done: the id that the event is about, if it is known, and what to do again until the event is there. */
export interface Done {
  object?: string
  again?: () => Promise<unknown>
}

/** Each event that can be triggered. */
export const recipes: Record<(typeof triggered)[number], (sluice: Connected, wish: Wish) => Promise<Done>> = {
  "checkout.session.completed": async (sluice, wish) => await paid(sluice, wish),
  "checkout.confirmed": async (sluice, wish) => await paid(sluice, wish),
  "checkout.expired": async (sluice, { on, amount, metadata }) => {
    const checkout = on
      ? await sluice.checkouts.get(on)
      : await sluice.checkouts.create({ amount, metadata, expiresIn: SHORTEST_S })
    await passEnd(sluice, checkout)
    // It expires once every block up to its end is final enough to be read.
    await inSandbox(sluice, "mine", { blocks: BLOCKS })
    return { object: checkout.id }
  },
  "payment.exception": async (sluice, wish) => {
    const id = await checkoutOf(sluice, wish)
    await payCheckout(sluice, id, { twice: true, buyer: 0 })
    // The event is about the payment, which has an id of its own.
    return {}
  },
  "paywall.granted": async (sluice, { on, amount }) => {
    const id = on ?? (await sluice.paywalls.create({ name: "Triggered", price: amount } as never)).id
    const { price, payTo } = await sluice.paywalls.get(id)
    const [address] = (await inSandbox(sluice, "wallet", { method: "eth_accounts", params: [], buyer: 0 }))
      .result as string[]
    const { txHash } = await inSandbox(sluice, "pay", { to: payTo, amount: price, buyer: 0 })
    await sluice.paywalls.pay(id, { txHash, address } as never)
    return {}
  },
  "subscription.renewal.created": async sluice => {
    await subscribe(sluice)
    // The invoice of the next day is made half a day before it, once no reorg can remove the first payment. The service looks for
    // that each minute.
    await inSandbox(sluice, "clock", { advance: "13h" })
    return {
      again: async () => {
        await inSandbox(sluice, "mine", { blocks: 2 })
        await inSandbox(sluice, "clock", { advance: "1m" })
      },
    }
  },
  "subscription.canceled": async sluice => {
    const id = await subscribe(sluice)
    await sluice.subscriptions.cancel(id, { at: "now" })
    return {}
  },
  "settings.webhook_changed": async sluice => {
    const { id } = (await sluice.webhooks.create({
      url: `${sluice.baseUrl}/sandbox/inbox/trigger`,
      events: ["checkout.confirmed"],
    } as never)) as { id: string }
    await sluice.webhooks.delete(id)
    return {}
  },
  ping: async (sluice, { on }) => {
    if (!on) throw new Failure("--on names the webhook that gets the ping.", 2)
    await sluice.webhooks.test(on)
    return {}
  },
}

const checkoutOf = async ({ checkouts }: Connected, { on, amount, metadata }: Wish): Promise<string> =>
  on ?? (await checkouts.create({ amount, metadata })).id

async function paid(sluice: Connected, wish: Wish): Promise<Done> {
  const object = await checkoutOf(sluice, wish)
  await payCheckout(sluice, object, { buyer: 0 })
  return { object }
}

/** Begins a subscription of a day by its first payment; returns its id. */
async function subscribe(sluice: Connected): Promise<string> {
  const { id: productId } = await sluice.products.create({ name: "Triggered", price: "1.00", billingInterval: "day" })
  const { id } = await sluice.checkouts.create({ productId })
  await payCheckout(sluice, id, { buyer: 0 })
  for (const endsAt = Date.now() + WAIT_MS; Date.now() < endsAt; await sleep(PAUSE_MS)) {
    const { data } = await sluice.subscriptions.list({ productId }).page({ limit: 1 })
    if (data[0]) return data[0].id
  }
  throw new Failure("The subscription has not begun in two minutes.", 4)
}
