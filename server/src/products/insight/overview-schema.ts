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
    "What payers paid and did not get back: received and reserved, less reversed, returned, released and refunded. Negative if more went back than came in",
  ),
  transfers: Count("How many transfers were received"),
  ...money,
})

const checkouts = {
  checkouts: Count("Checkouts created in this time, except those opened for agents"),
  paid: Count("Checkouts paid in this time, less those reversed in this time"),
}

const Period = Type.Object({
  at: Described(Timestamp, "When the period starts; the next one starts when it ends"),
  ...checkouts,
  figures: Type.Array(Figures, { description: "One for each token of a network with an entry in this time" }),
})

const median = Nullable(
  Type.Integer({
    description:
      "The median time in seconds from creation to confirmation of the checkouts paid in this time, at most the newest 1,000. Null if none was paid",
  }),
)

const funnel = {
  checkouts: checkouts.checkouts,
  converted: Count("How many of `checkouts` are paid by now"),
  successRate: Nullable(Type.Number({ description: "`converted` divided by `checkouts`, 0 to 1; null without any" })),
  paid: checkouts.paid,
  medianSecondsToPaid: median,
}

const Funnel = Type.Object(funnel)
const Totals = Type.Array(Figures, { description: "The sums of all periods: one for each token of a network" })

const Waiting = (what: string) =>
  Type.Object(
    {
      count: Count("At most 1,000; if it is 1,000, there may be more"),
      ids: Type.Array(Type.String(), { description: "The newest, at most 5" }),
    },
    { description: what },
  )

const Balance = Type.Object({
  ...token,
  amount: Described(Money, "The sum of the two"),
  inAddresses: Described(Money, "At your receiving addresses according to the books: what came in less what left"),
  waiting: Described(Money, "The part of `inAddresses` that waits for your decision"),
  inEscrow: Described(Money, "Reserved, but not captured or released"),
})

export const Balances = Type.Object({
  data: Type.Array(Balance, { description: "One for each token of a network that ever had an entry in the books" }),
})

const Step = Type.Object({
  step: Type.Enum(["payout_address", "for_sale", "first_payment", "webhook"], { type: "string" }),
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
    { description: "The same for as many periods before `from`" },
  ),
  balances: Type.Array(Balance),
  attention: Type.Object(
    {
      payments: Waiting("Payments that wait for your decision"),
      surpluses: Waiting("Payments whose surplus is waiting for your decision"),
      refunds: Waiting("Refunds on hold, such as for a low allowance or balance"),
      payouts: Waiting("Shares, sweeps and returns on hold"),
      webhooks: Waiting("Endpoints whose last deliveries all failed, or that were switched off because of that"),
      payoutAddresses: Waiting("Networks whose payout address changes soon"),
      subscriptions: Waiting("Subscriptions that are past due"),
    },
    { description: "What needs you now, independent of the period" },
  ),
  subscriptions: Type.Object({
    active: Count("How many are paid for, due or past due now"),
    mrr: Type.Array(
      Type.Object({
        ...token,
        amount: Described(
          Money,
          "Monthly amount of these, at the price of the next invoice: a year counts a twelfth, a day 1461/48 times; rounded down",
        ),
      }),
    ),
    started: Count("How many started in this time"),
    ended: Count("How many ended in this time"),
    churn: Nullable(
      Type.Number({
        description: "`ended` divided by the number at `from`; null if there were none",
      }),
    ),
  }),
  checklist: Type.Array(Step, { description: "The first steps of a new merchant; empty after the first payment" }),
})

export const OverviewQuery = Type.Object({
  from: Type.Optional(
    Described(TimeInput, "The answer starts with the period that contains it; by default 30 days before `to`"),
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
      description: "The length of a period, by the clocks of `tz`; weeks start on Monday",
    }),
  ),
  tz: Type.Optional(
    Matching(
      "^[A-Za-z0-9_+/-]{1,64}$",
      "The name of a time zone, such as Asia/Kolkata; by default the merchant's, otherwise UTC",
    ),
  ),
  chain: Type.Optional(Type.String({ maxLength: 32, description: "A network of this service; without it, all" })),
})
