/** The wire contract of the overview and the balances. */
import { Type } from "typebox"
import { AddressText, Described, Matching, Money, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import { TimeInput } from "../../platform/http/time.ts"
import { type MoneyFigure, moneyFigures } from "./figure-columns.ts"
import { intervals } from "./zones.ts"

const Count = (description: string) => Type.Integer({ description })

const token = {
  chain: Type.String(),
  token: Described(AddressText, "The token's contract. Nothing is added across tokens or networks"),
  currency: Type.String({ description: "The token's symbol, or its address if the symbol is unknown" }),
  decimals: Nullable(Type.Integer({ description: "Null: amounts are in base units" })),
}

const money = Object.fromEntries(
  Object.entries(moneyFigures).map(([name, words]) => [name, Described(Money, words)]),
) as Record<MoneyFigure, typeof Money>

const Figures = Type.Object({
  ...token,
  net: Described(
    Money,
    "What payers paid and did not get back: received and reserved, less reversed, returned, released and refunded. Below zero where more went back than came in",
  ),
  transfers: Count("How many transfers were received"),
  ...money,
})

const checkouts = {
  checkouts: Count("Checkouts made in this time, without those that were opened for agents"),
  paid: Count("Checkouts paid in this time, less those whose payment was reversed in it"),
}

const Period = Type.Object({
  at: Described(Timestamp, "When the period begins; the next one begins when it ends"),
  ...checkouts,
  figures: Type.Array(Figures, { description: "One for each token of a network with an entry in this time" }),
})

const median = Nullable(
  Type.Integer({
    description:
      "The median time from a checkout's creation to its confirmation, in seconds, of those paid in this time: of the newest 1,000, where there are more. Null where none was",
  }),
)

const funnel = {
  checkouts: checkouts.checkouts,
  converted: Count("Those of `checkouts` that are paid by now"),
  successRate: Nullable(Type.Number({ description: "`converted` divided by `checkouts`, 0 to 1; null without any" })),
  paid: checkouts.paid,
  medianSecondsToPaid: median,
}

const Funnel = Type.Object(funnel)
const Totals = Type.Array(Figures, { description: "The sums of all periods: one for each token of a network" })

const Waiting = (what: string) =>
  Type.Object(
    {
      count: Count("At most 1,000; there may be more then"),
      ids: Type.Array(Type.String(), { description: "The newest, at most 5" }),
    },
    { description: what },
  )

const Balance = Type.Object({
  ...token,
  amount: Described(Money, "The sum of the two"),
  inAddresses: Described(Money, "At your receiving addresses by the books: what came in less what left"),
  inEscrow: Described(Money, "Reserved and neither captured nor released"),
})

export const Balances = Type.Object({
  data: Type.Array(Balance, { description: "One for each token of a network that ever had an entry in the books" }),
})

const Step = Type.Object({
  step: Type.Enum(["payout_address", "for_sale", "webhook", "first_payment"], { type: "string" }),
  done: Type.Boolean(),
  url: Type.String({ description: "The page of the console where it is done", examples: ["/console/settings"] }),
})

export const Overview = Type.Object({
  from: Described(Timestamp, "The start of the first period"),
  to: Described(Timestamp, "The end of the last period"),
  interval: Type.Enum(intervals, { type: "string" }),
  tz: Type.String(),
  series: Type.Array(Period, { description: "Each period, oldest first" }),
  totals: Totals,
  funnel: Funnel,
  previous: Type.Object(
    { from: Timestamp, to: Timestamp, totals: Totals, funnel: Funnel },
    { description: "The same of as many periods before `from`" },
  ),
  balances: Type.Array(Balance),
  attention: Type.Object(
    {
      payments: Waiting("Payments that wait for your decision"),
      surpluses: Waiting("Payments whose surplus waits for your decision"),
      refunds: Waiting("Refunds that are held, as by an allowance or a balance that is too small"),
      payouts: Waiting("Shares, sweeps and returns that are held"),
      webhooks: Waiting("Endpoints whose last deliveries all failed, or that were switched off because of it"),
      payoutAddresses: Waiting("Networks whose payout address changes soon"),
      subscriptions: Waiting("Subscriptions that are past due"),
    },
    { description: "What needs you now, whatever the period" },
  ),
  subscriptions: Type.Object({
    active: Count("How many are paid for, due or past due now"),
    mrr: Type.Array(
      Type.Object({
        ...token,
        amount: Described(
          Money,
          "A month of those, at the price of the next invoice: a year counts a twelfth, a day 1461/48 times; rounded down",
        ),
      }),
    ),
    started: Count("How many began in this time"),
    ended: Count("How many ended in this time"),
    churn: Nullable(
      Type.Number({
        description: "`ended` divided by how many there were when `from` began; null where there were none",
      }),
    ),
  }),
  checklist: Type.Array(Step, { description: "The first steps of a new merchant; empty after the first payment" }),
})

export const OverviewQuery = Type.Object({
  from: Type.Optional(
    Described(TimeInput, "The answer begins with the period that contains it; by default 30 days before `to`"),
  ),
  to: Type.Optional(
    Described(
      TimeInput,
      "Like `from`; the answer ends with the period that contains the moment before it; by default now",
    ),
  ),
  interval: Type.Optional(
    Type.Enum(intervals, {
      type: "string",
      default: "day",
      description: "How long a period is, by the clocks of `tz`; weeks begin on Monday",
    }),
  ),
  tz: Type.Optional(
    Matching("^[A-Za-z0-9_+/-]{1,64}$", "The name of a time zone, such as Asia/Kolkata; by default UTC"),
  ),
  chain: Type.Optional(Type.String({ maxLength: 32, description: "A network of this service; without it, all" })),
})
