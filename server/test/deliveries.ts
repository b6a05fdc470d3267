/** Webhook deliveries in a test: the service, receivers on loopback, and the deliverer that sends to them. */
import { type Deliverer, openDeliverer } from "../src/account/webhooks/deliver-events.ts"
import { emit, type NewEvent } from "../src/account/webhooks/emit.ts"
import { openSender, type Sender } from "../src/account/webhooks/send.ts"
import { inTransaction } from "../src/platform/context.ts"
import { type Receiver, startReceiver } from "./receiver.ts"
import { startService, type TestService } from "./service.ts"

export interface DeliveryRig {
  service: TestService
  /** The merchant `shop`, and what sends its events; all new with each `begin`. */
  merchantId: string
  sender: Sender
  deliverer: Deliverer
  /** Called by `end`, in turn. */
  stops: (() => unknown)[]
  /** Empties the database. */
  begin(): Promise<void>
  end(): Promise<void>
  receiver(...how: Parameters<typeof startReceiver>): Promise<Receiver>
  /** An endpoint, registered as a merchant does; without the notice of it to the others. Throws where it is refused. */
  register(url: string, events?: string[]): Promise<{ id: string; secret: string }>
  /** Emits an event in a transaction of its own. */
  send(more?: Partial<Omit<NewEvent<"subscription.renewal.created">, "data">> & { data?: object }): Promise<string>
  /** Delivers until nothing is due. */
  deliver(by?: Deliverer): Promise<void>
  stop(): Promise<void>
}

export async function startDeliveryRig(): Promise<DeliveryRig> {
  const service = await startService()
  const { ctx } = service
  const sender = openSender(ctx.settings.webhooks)
  const rig: DeliveryRig = {
    service,
    merchantId: "",
    sender,
    deliverer: openDeliverer(ctx, sender),
    stops: [],
    begin: async () => {
      await service.empty()
      rig.merchantId = await service.merchant("shop")
      await ctx.db.deleteFrom("events").execute()
      rig.sender = openSender(ctx.settings.webhooks)
      rig.deliverer = openDeliverer(ctx, rig.sender)
    },
    end: async () => {
      await rig.sender.close()
      for (const stop of rig.stops.splice(0)) await stop()
    },
    receiver: async (...how) => {
      const made = await startReceiver(...how)
      rig.stops.push(made.stop)
      return made
    },
    register: async (url, events = ["*"]) => {
      const { status, body } = await service.call("POST", "/api/console/webhooks", { url, events }, { as: "shop" })
      if (status !== 201) throw new Error(`no endpoint: ${JSON.stringify(body)}`)
      const notices = ctx.db.selectFrom("events").select("id").where("type", "=", "settings.webhook_changed")
      await ctx.db.deleteFrom("deliveries").where("event_id", "in", notices).execute()
      await ctx.db.deleteFrom("events").where("type", "=", "settings.webhook_changed").execute()
      return body.data
    },
    send: async ({ data = { n: 1 }, ...more } = {}) => {
      const event = { type: "subscription.renewal.created" as const, orderKey: `cs_${Math.random()}`, ...more }
      const { merchantId } = rig
      const [id = ""] = await inTransaction(ctx, ctx => emit(ctx, { merchantId, data: data as never, ...event }))
      return id
    },
    deliver: async (by = rig.deliverer) => {
      do await by.idle()
      while ((await by.round()) > 0)
    },
    stop: async () => {
      await rig.sender.close()
      await service.stop()
    },
  }
  return rig
}
