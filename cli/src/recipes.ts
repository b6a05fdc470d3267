/** How each event is caused in the sandbox, by real payments on the sandbox's chain. */
import { SluiceError } from "../../sdk/src/errors.ts"
import { Failure } from "./failure.ts"
import type { connect } from "./profiles.ts"
import { askWallet, inSandbox, passEnd, payCheckout, reserve, sendAsMerchant, waitFor } from "./sandbox.ts"
import type { triggered } from "./triggers.ts"

const BLOCKS = 12
/** The shortest time to pay that a checkout can have, in seconds. */
const SHORTEST_S = 300
/** The time after which the service believes that transactions removed by a reorg are gone. */
const SUSPECT = "31s"
/** How often a payment is tried. A payment may become final before the reorg comes, and then another one is made. */
const MAX_TRIES = 5

type Connected = ReturnType<typeof connect>

/** What the caller asked for. */
export interface Wish {
  on: string | undefined
  amount: string
  metadata: Record<string, string>
}

/** What was done: the id of the object that the event is about, if known, and what to repeat until the event occurs. */
export interface Done {
  object?: string
  again?: () => Promise<unknown>
}

/** The recipe for each event that can be triggered. */
export const recipes: Record<(typeof triggered)[number], (sluice: Connected, wish: Wish) => Promise<Done>> = {
  "checkout.session.completed": async (sluice, wish) => await paid(sluice, wish),
  "checkout.confirmed": async (sluice, wish) => await paid(sluice, wish),
  "checkout.authorized": async (sluice, wish) => ({ object: await reserved(sluice, wish) }),
  "checkout.voided": async (sluice, wish) => {
    const object = await reserved(sluice, wish)
    await sluice.payments.void({ sessionId: object })
    return { object }
  },
  "checkout.failed": async (sluice, { on, amount, metadata }) => {
    const id = on ?? (await sluice.checkouts.create({ amount, metadata, expiresIn: SHORTEST_S })).id
    const [address] = (await askWallet(sluice, { buyer: 1 }, "eth_accounts")) as string[]
    // A transfer that has nothing to do with this checkout.
    const { txHash } = (await inSandbox(sluice, "pay", { to: address, amount: "0.01", buyer: 0 })) as { txHash: string }
    await sluice.pay.confirm({ sessionId: id, txHash })
    await waitFor("the hash is refused", async () => {
      const { submission } = await sluice.pay.status(id, { txHash, wait: 25 })
      return submission?.status === "failed" ? true : undefined
    })
    await passEnd(sluice, await sluice.checkouts.get(id))
    await inSandbox(sluice, "mine", { blocks: BLOCKS })
    return { object: id }
  },
  "checkout.expired": async (sluice, { on, amount, metadata }) => {
    const checkout = on
      ? await sluice.checkouts.get(on)
      : await sluice.checkouts.create({ amount, metadata, expiresIn: SHORTEST_S })
    await passEnd(sluice, checkout)
    // The checkout expires once every block up to its end is final enough to be read.
    await inSandbox(sluice, "mine", { blocks: BLOCKS })
    return { object: checkout.id }
  },
  "checkout.session.reversed": async (sluice, { on, ...wish }) => {
    if (on) return await takenBack(sluice, await txHashOf(sluice, on))
    return await paidAndTakenBack(sluice, async () => {
      const { object = "" } = await paid(sluice, { ...wish, on })
      return await txHashOf(sluice, object)
    })
  },
  "payment.exception": async (sluice, wish) => {
    const id = await checkoutOf(sluice, wish)
    await payCheckout(sluice, id, { twice: true, buyer: 0 })
    // The event is about the payment, whose id is not known here.
    return {}
  },
  "payment.refunded": async (sluice, { on, amount, metadata }) => {
    const sessionId = on ?? (await sluice.checkouts.create({ amount, metadata, capture: "automatic" })).id
    if ((await sluice.pay.status(sessionId)).status === "pending") await reserve(sluice, sessionId)
    await waitFor(`${sessionId} is captured`, async () => {
      const { status } = await sluice.pay.status(sessionId, { wait: 25 })
      return ["confirmed", "partially_refunded"].includes(status) ? true : undefined
    })
    const { refundId } = await sluice.refunds.create({ sessionId })
    // The merchant's payout wallet must first allow the refund, unless it has already allowed enough.
    const allowed = await waitFor(`${refundId} can be paid`, async () => {
      const { status, approval } = await sluice.refunds.get(refundId)
      if (status === "needs_approval") return approval ?? undefined
      return status === "succeeded" ? "already" : undefined
    })
    if (allowed !== "already") await sendAsMerchant(sluice, allowed.owner ?? "", allowed.call ?? {})
    return { object: sessionId }
  },
  "paywall.granted": async (sluice, wish) => {
    await grant(sluice, wish)
    return {}
  },
  "paywall.reversed": async (sluice, wish) =>
    await paidAndTakenBack(sluice, async () => {
      const { id, txHash, address } = await grant(sluice, wish)
      await waitFor("access is granted", async () => {
        const { status } = await sluice.paywalls.getPayment(id, txHash, { address, wait: 25 } as never)
        return status === "granted" ? true : undefined
      })
      return txHash
    }),
  "subscription.renewal.created": async (sluice, { on }) => {
    if (!on) await subscribe(sluice)
    // The next day's invoice is created half a day before that day, once no reorg can remove the first payment. The
    // service checks this every minute.
    await inSandbox(sluice, "clock", { advance: "13h" })
    return { again: async () => await pass(sluice, "1m") }
  },
  "subscription.past_due": async (sluice, { on }) => {
    const object = on ?? (await subscribe(sluice))
    // An unpaid invoice is past due three days after its due time.
    return { object, again: async () => await pass(sluice, "12h") }
  },
  "subscription.canceled": async (sluice, { on }) => {
    await sluice.subscriptions.cancel(on ?? (await subscribe(sluice)), { at: "now" })
    return {}
  },
  "subscription.resumed": async (sluice, { on }) => {
    const object = on ?? (await subscribe(sluice))
    const { status } = await sluice.subscriptions.get(object)
    if (status !== "paused") await sluice.subscriptions.pause(object)
    await sluice.subscriptions.resume(object)
    return { object }
  },
  "settings.split_changed": async sluice => {
    const recipients = await Promise.all(
      [1, 2].map(async buyer => {
        const [address] = (await askWallet(sluice, { buyer }, "eth_accounts")) as string[]
        return { address, percent: 50 }
      }),
    )
    const { id } = await sluice.splits.create({ name: "Triggered", recipients } as never)
    await sluice.splits.delete(id)
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
    if (!on) throw new Failure("--on must name the webhook that gets the ping.", 2)
    await sluice.webhooks.test(on)
    return {}
  },
}

const checkoutOf = async ({ checkouts }: Connected, { on, amount, metadata }: Wish): Promise<string> =>
  on ?? (await checkouts.create({ amount, metadata })).id

/** Pays a checkout. If its money is reserved first, the whole amount is captured. */
async function paid(sluice: Connected, wish: Wish): Promise<Done & { object: string }> {
  const object = await checkoutOf(sluice, wish)
  const { capture, status } = await sluice.pay.status(object)
  if (capture === "direct") await payCheckout(sluice, object, { buyer: 0 })
  else {
    if (status === "pending") await reserve(sluice, object)
    if (capture === "manual") await sluice.payments.capture({ sessionId: object })
  }
  return { object }
}

/** Reserves money in escrow for a checkout without capturing it, and returns the checkout's id. */
async function reserved(sluice: Connected, { on, amount, metadata }: Wish): Promise<string> {
  const id = on ?? (await sluice.checkouts.create({ amount, metadata, capture: "manual" })).id
  if ((await sluice.pay.status(id)).status === "pending") await reserve(sluice, id)
  return id
}

/** Pays at a paywall; returns the paywall's id, the hash of the transaction, and the payer's address. */
async function grant(
  sluice: Connected,
  { on, amount }: Wish,
): Promise<{ id: string; txHash: string; address: string }> {
  const id = on ?? (await sluice.paywalls.create({ name: "Triggered", price: amount } as never)).id
  const { price, payTo } = await sluice.paywalls.get(id)
  const [address = ""] = (await askWallet(sluice, { buyer: 0 }, "eth_accounts")) as string[]
  const { txHash } = (await inSandbox(sluice, "pay", { to: payTo, amount: price, buyer: 0 })) as { txHash: string }
  await sluice.paywalls.pay(id, { txHash, address } as never)
  return { id, txHash, address }
}

/** The transaction that paid a checkout, once the checkout is confirmed. */
const txHashOf = async (sluice: Connected, id: string): Promise<string> =>
  await waitFor(`${id} is confirmed`, async () => {
    const { status, txHash } = await sluice.pay.status(id, { wait: 25 })
    return status === "confirmed" ? (txHash ?? undefined) : undefined
  })

/** Makes payments until a reorg removes one of them. */
async function paidAndTakenBack(sluice: Connected, pay: () => Promise<string>): Promise<Done> {
  for (let i = 1; ; i++)
    try {
      return await takenBack(sluice, await pay())
    } catch (error) {
      if (!(error instanceof SluiceError) || error.code !== "VALIDATION_ERROR" || i >= MAX_TRIES) throw error
    }
}

/** Removes a transaction by a reorg, as if it had never been mined. */
async function takenBack(sluice: Connected, txHash: string): Promise<Done> {
  await inSandbox(sluice, "reorg", { txHash })
  return { again: async () => await pass(sluice, SUSPECT) }
}

async function pass(sluice: Connected, advance: string): Promise<void> {
  await inSandbox(sluice, "mine", { blocks: 2 })
  await inSandbox(sluice, "clock", { advance })
}

/** Starts a daily subscription by paying its first period; returns the subscription's id. */
async function subscribe(sluice: Connected): Promise<string> {
  const { id: productId } = await sluice.products.create({ name: "Triggered", price: "1.00", billingInterval: "day" })
  const { id } = await sluice.checkouts.create({ productId })
  await payCheckout(sluice, id, { buyer: 0 })
  return await waitFor("the subscription begins", async () => {
    const { data } = await sluice.subscriptions.list({ productId }).page({ limit: 1 })
    return data[0]?.id
  })
}
