/** The zone in which the pages show times: the merchant's, or else the browser's. */
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

let shown = 0
/** Whether the page shows a time in the zone. */
const showsTimes = newStore(false)

/** Marks that a component shows times, while it is on the page. */
export function useShowsTimes(): void {
  useEffect(() => {
    shown++
    showsTimes.set(true)
    return () => {
      shown--
      showsTimes.set(shown > 0)
    }
  }, [])
}

/** The zone of the page's times, where they are not in the browser's. */
export function useZoneToName(): string | undefined {
  const current = zone.use()
  const isShown = showsTimes.use()
  return isShown && isElsewhere(current) ? current : undefined
}
