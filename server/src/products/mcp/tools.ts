/** The table of tools that read, or that create what can be undone. `prepare-money.ts` has those that move money. */
// I/O: each tool calls the API through the function that it is given.
import { Type } from "typebox"
import { searchDocs } from "./search-docs.ts"
import type { CallApi, Found, Tool, ToolRoute } from "./tool.ts"

const MAX_ROWS = 50
const DEFAULT_ROWS = 20
/** The most deliveries of an event that are resent. Deliveries beyond this number are not resent. */
const MAX_RESENT = 50

const text = (description: string, more: object = {}) =>
  Type.Optional(Type.String({ maxLength: 500, description, ...more }))
const id = (prefix: string, of: string) =>
  Type.String({ pattern: `^${prefix}_[a-z0-9]{24}$`, description: `The id of ${of}, ${prefix}_ and 24 characters` })
const anyId = Type.String({
  pattern: "^[a-z]{2,5}_[a-z0-9]{24,32}$",
  description: "An id, such as pay_… or cs_…; `search` finds it",
})
const amount = Type.String({ pattern: "^\\d{1,7}(\\.\\d{1,18})?$", description: "In whole tokens, such as 19.90" })
const day = text("A time with its offset, or a day: 2026-01-31", { maxLength: 40 })
const page = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_ROWS, description: `${DEFAULT_ROWS} by default` })),
  after: text("The `next` of the answer before, for the rows after it"),
}
const input = (properties: Parameters<typeof Type.Object>[0]) =>
  Type.Object(properties, { additionalProperties: false })

/** A tool that returns a page of a list. */
function list(title: string, does: string, path: `/${string}`, properties: Parameters<typeof Type.Object>[0]): Tool {
  const route = `GET ${path}` as const
  return {
    title,
    does: `${does} Newest first.`,
    kind: "reads",
    asks: [route],
    answers: route,
    input: input({ ...properties, ...page }),
    run: async (call, given) => {
      const result = await call("GET", path, { query: { limit: DEFAULT_ROWS, ...given } })
      return { sentence: `${result.data.length} of ${result.total}.`, result }
    },
  }
}

const reading: Record<string, Tool> = {
  search: {
    title: "Search",
    does: "Finds anything by an id, a transaction hash, an address, an e-mail address or a word of the merchant's own. Start here if you have no id.",
    kind: "reads",
    asks: ["GET /api/console/search"],
    answers: "GET /api/console/search",
    input: input({ q: Type.String({ minLength: 1, maxLength: 200, description: "What to look for" }) }),
    run: async (call, { q }) => {
      const result = await call("GET", "/api/console/search", { query: { q } })
      return { sentence: `Found ${result.data.length}.`, result }
    },
  },
  explain_payment: {
    title: "Explain a payment",
    does: "Says what happened to a payment, checkout, payout, refund, subscription, invoice or event, why it stands as it does, and what can be done now. The reasons are in `untrusted`, since they quote others.",
    kind: "reads",
    asks: ["GET /api/console/timeline/:id"],
    answers: "GET /api/console/timeline/:id",
    input: input({ id: anyId }),
    run: async (call, { id }) => {
      const result = await call("GET", `/api/console/timeline/${id}`)
      // `why` quotes texts of others, such as an endpoint's error, so it belongs in `untrusted`.
      return { sentence: `${result.status.word}.`, result }
    },
  },
  list_payments: list(
    "List payments",
    "Lists incoming and outgoing money. With `status` open: payments that wait for a decision.",
    "/api/console/transactions",
    {
      type: text("payment, agent, share, sweep, return, capture, void or refund"),
      status: text("For payments: granted, reversed, open or returned"),
      from: day,
      to: day,
      q: text("An id, a transaction hash or an address"),
    },
  ),
  list_payouts: list("List payouts", "Lists what left, and what is on its way out.", "/api/console/payouts", {
    kind: text("share, sweep, return or capture"),
    state: text("Such as queued, held or final"),
    from: day,
    to: day,
  }),
  list_subscriptions: list("List subscriptions", "Lists subscriptions.", "/api/console/subscriptions", {
    status: text("Such as active, past_due or canceled"),
    productId: text("Of this product"),
    q: text("An id, an address or an e-mail address"),
  }),
  list_deliveries: list(
    "List deliveries",
    "Lists the deliveries of events to endpoints, with their state. For an event that did not arrive, look here.",
    "/api/console/deliveries",
    {
      status: text("pending, delivered, failed or skipped"),
      event: text("The event's name"),
      eventId: text("Of this event"),
      since: day,
    },
  ),
  list_events: list("List events", "Lists what happened, as events are sent.", "/api/console/events", {
    type: text("The event's name, such as checkout.confirmed"),
    since: day,
    object: text("The id of what they are about"),
  }),
  list_requests: list(
    "List requests",
    "Lists the requests that the service answered for this merchant, with the reason of each refusal. Look here if an integration fails.",
    "/api/console/requests",
    {
      status: text("refused, 2xx, 3xx, 4xx or 5xx"),
      route: text("The route's pattern, such as /api/checkouts"),
      from: day,
      to: day,
    },
  ),
  get_overview: {
    title: "Overview",
    does: "Gives the figures of a time: what came in and went out, balances, and what needs a decision.",
    kind: "reads",
    asks: ["GET /api/console/overview"],
    answers: "GET /api/console/overview",
    input: input({
      from: day,
      to: day,
      interval: text("day, week or month"),
      tz: text("A time zone, such as Europe/Paris"),
    }),
    run: async (call, given) => ({
      sentence: "The figures are by token and network; nothing is added across tokens.",
      result: await call("GET", "/api/console/overview", { query: given }),
    }),
  },
  docs_search: {
    title: "Search the documents",
    does: "Finds sections of this service's documents by words. Use it for how-to questions, and before you write code.",
    kind: "reads",
    asks: ["GET /healthz"],
    answers: undefined,
    input: input({
      words: Type.String({ minLength: 2, maxLength: 200, description: "Words, such as webhook signature" }),
    }),
    run: async (_, { words }) => {
      const found = await searchDocs(words)
      return { sentence: `Found ${found.length} sections.`, result: { data: found } }
    },
  },
}

/** A tool that creates one object. */
function make(
  title: string,
  does: string,
  path: `/${string}`,
  properties: Parameters<typeof Type.Object>[0],
  // biome-ignore lint/suspicious/noExplicitAny: as in `CallApi`.
  sentence: (made: any) => string,
): Tool {
  const route: ToolRoute = `POST ${path}`
  return {
    title,
    does,
    kind: "makes",
    asks: [route],
    answers: route,
    input: input(properties),
    run: async (call, body): Promise<Found> => {
      const result = await call("POST", path, { body })
      return { sentence: sentence(result), result }
    },
  }
}

const making: Record<string, Tool> = {
  create_checkout: make(
    "Create a checkout",
    "Starts a checkout: one payment of one amount, with a page where the payer pays.",
    "/api/checkouts",
    {
      amount,
      description: text("What the payer reads"),
      chain: text("The network; the default one without it"),
      redirectUrl: text("Where the payer goes afterwards", { pattern: "^https?://" }),
      expiresIn: Type.Optional(Type.Integer({ minimum: 300, maximum: 2_592_000, description: "Seconds to pay" })),
      metadata: Type.Optional(Type.Record(Type.String(), Type.String(), { description: "The merchant's own data" })),
    },
    made => `Made the checkout ${made.id} over ${made.amount} ${made.currency}.`,
  ),
  create_payment_link: make(
    "Create a payment link",
    "Makes a link that starts a checkout for anyone who opens it.",
    "/api/console/payment-links",
    {
      title: Type.String({ minLength: 1, maxLength: 200, description: "What the payer reads" }),
      amount: Type.Optional(amount),
      productId: Type.Optional(id("prod", "a product that it sells")),
      description: text("More for the payer"),
      maxUses: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000 })),
      expiresAt: day,
      payerFields: Type.Optional(
        Type.Array(Type.String({ pattern: "^[a-zA-Z][a-zA-Z0-9_]{0,39}$" }), {
          maxItems: 20,
          description: "Fields that each payer fills in before paying, such as shippingAddress",
        }),
      ),
    },
    made => `Made the payment link ${made.id}.`,
  ),
  create_product: make(
    "Create a product",
    "Makes a product with a price. With `billingInterval` it is a subscription.",
    "/api/console/products",
    {
      name: Type.String({ minLength: 1, maxLength: 200, description: "What the payer reads" }),
      price: amount,
      description: text("More for the payer"),
      billingInterval: text("day, week, month or year"),
    },
    made => `Made the product ${made.id} at ${made.price} ${made.currency}.`,
  ),
  resend_event: {
    title: "Resend an event",
    does: "Sends an event again to each endpoint that was to get it. Receivers see the same id, so one that is written well does nothing twice.",
    kind: "makes",
    asks: ["GET /api/console/deliveries", "POST /api/console/deliveries/:id/resend"],
    answers: "GET /api/console/deliveries",
    input: input({ eventId: id("evt", "the event") }),
    run: async (call, { eventId }) => await resend(call, eventId),
  },
}

async function resend(call: CallApi, eventId: string): Promise<Found> {
  const query = { eventId, limit: MAX_RESENT }
  const { data } = await call("GET", "/api/console/deliveries", { query })
  for (const { id: delivery } of data) await call("POST", `/api/console/deliveries/${delivery}/resend`, { body: {} })
  const result = await call("GET", "/api/console/deliveries", { query })
  return { sentence: `Sent it again to ${data.length} of its endpoints.`, result }
}

/** The tools by name, in the order in which they are listed. */
export const plainTools: Record<string, Tool> = { ...reading, ...making }
