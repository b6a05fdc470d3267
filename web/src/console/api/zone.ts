/** The zone in which the pages show times: the merchant's, or else the browser's; and how a time is written in it. */
import { useEffect } from "react"
import { chosenMerchant } from "./client.ts"
import { isZone, nameOfToday, offsetAt } from "./days.ts"
import { firstMe } from "./facts.ts"
import { newStore } from "./store.ts"
import type { Membership } from "./types.ts"

/** The zone of this browser. */
export const browserZone = nameOfToday(Intl.DateTimeFormat().resolvedOptions().timeZone)

/** A browser that is older than the zone shows its own. */
const zoneOf = (of: Pick<Membership, "timeZone"> | undefined): string =>
  of?.timeZone && isZone(of.timeZone) ? of.timeZone : browserZone

const memberships = firstMe?.merchants ?? []
const zone = newStore(
  zoneOf(memberships.find(({ merchantId }) => merchantId === chosenMerchant.get()) ?? memberships[0]),
)

/** The zone of the pages; a component that calls this is drawn anew when it changes. */
export const useZone = (): string => zone.use()

/** The zone of the pages as it is now. */
export const zoneNow = (): string => zone.get()

/** Keeps the zone of the pages that of the chosen membership. */
export function useZoneOf(membership: Membership | undefined): void {
  const next = zoneOf(membership)
  useEffect(() => zone.set(next), [next])
}

const MONTH_MS = 30 * 86_400_000

/** Whether the clocks of a zone ever differ from the browser's within about a year. */
const isElsewhere = (zone: string): boolean =>
  Array.from({ length: 13 }, (_, i) => Date.now() + (i - 6) * MONTH_MS).some(
    at => offsetAt(at, zone) !== offsetAt(at, browserZone),
  )

/** The zone of the pages' times, where it is not the browser's. */
export function useZoneToName(): string | undefined {
  const current = zone.use()
  return isElsewhere(current) ? current : undefined
}

const LANGUAGE = navigator.language || "en"
/** 24 hours in each language, as in the server's sentences. */
const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const
const forms = {
  exact: { dateStyle: "medium", timeStyle: "long", hourCycle: "h23" },
  clock: time,
  withSeconds: { month: "short", day: "numeric", ...time, second: "2-digit" },
  day: { month: "short", day: "numeric", ...time },
  dayAlone: { month: "short", day: "numeric" },
  farDay: { year: "numeric", month: "short", day: "numeric" },
} as const

const made = new Map<string, Intl.DateTimeFormat>()

/** A time in words of one form, in a zone. */
export function formatted(form: keyof typeof forms, at: number, zone: string): string {
  const key = `${form} ${zone}`
  const found = made.get(key) ?? new Intl.DateTimeFormat(LANGUAGE, { ...forms[form], timeZone: zone })
  made.set(key, found)
  return found.format(at)
}

/** The name of a zone as people write it. */
export const zoneTitle = (zone: string): string => zone.replaceAll("_", " ")

/** The exact time; where the browser's clock shows another, both, each with its zone. */
export function exactText(at: number, zone: string): string {
  const here = formatted("exact", at, zone)
  if (zone === browserZone || offsetAt(at, zone) === offsetAt(at, browserZone)) return here
  const there = formatted("exact", at, browserZone)
  return `${here}, ${zoneTitle(zone)}\n${there}, your browser (${zoneTitle(browserZone)})`
}
