/** The figures of Home: one request. */
import { useEffect } from "react"
import { read } from "./client.ts"
import { dayAfter, dayAt, startOfDay } from "./days.ts"
import { useLive } from "./live.ts"
import { countInFigures } from "./needs.ts"
import { useZone } from "./zone.ts"

export interface Token {
  chain: string
  token: string
  currency: string
  decimals: number | null
}

export interface Figures extends Token {
  net: string
  received: string
  transfers: number
}

interface Funnel {
  checkouts: number
  converted: number
  /** 0 to 1. */
  successRate: number | null
  paid: number
  medianSecondsToPaid: number | null
}

interface Waiting {
  count: number
  ids: string[]
}

/** What is held now, in a token; `waiting` is a part of `inAddresses`. */
export interface Balance extends Token {
  amount: string
  inAddresses: string
  waiting: string
  inEscrow: string
}

export type AttentionKind =
  | "payments"
  | "surpluses"
  | "refunds"
  | "payouts"
  | "webhooks"
  | "payoutAddresses"
  | "subscriptions"

export interface Overview {
  from: string
  to: string
  series: { at: string; checkouts: number; paid: number; figures: Figures[] }[]
  totals: Figures[]
  funnel: Funnel
  previous: { from: string; to: string; totals: Figures[]; funnel: Funnel }
  balances: Balance[]
  attention: Record<AttentionKind, Waiting>
  subscriptions: {
    active: number
    mrr: (Token & { amount: string })[]
    started: number
    ended: number
    /** 0 to 1. */
    churn: number | null
  }
  checklist: { step: string; done: boolean; url: string }[]
}

/** The days of the merchant's zone, the last of them today. */
export function useOverview(days: number) {
  const zone = useZone()
  const query = useLive<Overview>(
    ["overview", days, zone],
    signal => {
      const now = Date.now()
      const first = startOfDay(dayAfter(dayAt(now, zone), 1 - days), zone) ?? now
      return read("/api/console/overview", { from: new Date(first).toISOString(), interval: "day", tz: zone }, signal)
    },
    { every: 20_000, keep: true },
  )
  const { data } = query
  useEffect(() => {
    if (data) countInFigures.set(data.attention.payments.count + data.attention.surpluses.count)
  }, [data])
  return query
}

/** Whether two figures are of one token. */
export const isSame = (a: Token, b: Token): boolean => a.chain === b.chain && a.token === b.token

/** The figure of a token, or zero of it. */
export const figureOf = (figures: readonly Figures[], token: Token): Figures =>
  figures.find(each => isSame(each, token)) ?? { ...token, net: "0.00", received: "0.00", transfers: 0 }

/** The change between two amounts in percent, for a sentence; null where there was nothing before. */
export function changeOf(now: string, before: string): string | null {
  const base = Number(before)
  if (base <= 0) return null
  const percent = ((Number(now) - base) / base) * 100
  return `${percent >= 0 ? "+" : "−"}${Math.abs(percent).toFixed(Math.abs(percent) < 10 ? 1 : 0)} %`
}
