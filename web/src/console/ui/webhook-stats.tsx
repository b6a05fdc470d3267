/** How an endpoint did in the last day: what arrived, and how long its answers took. */

import { read } from "../api/client.ts"
import { useLive } from "../api/live.ts"
import type { WebhookStats } from "../api/types.ts"
import { Facts } from "./page.tsx"
import { Problem } from "./problem.tsx"

const HOURS = 24

/** The longest of the periods' times; null without one. */
const most = (times: (number | null)[]): number | null =>
  times.reduce((a, b) => (a === null ? b : b === null ? a : Math.max(a, b)), null)

const sum = (numbers: number[]): number => numbers.reduce((a, b) => a + b, 0)

export default function WebhookStatsCard({ id }: { id: string }) {
  const query = useLive(
    ["webhook-stats", id],
    async signal =>
      (await read<WebhookStats>(`/api/console/webhooks/${id}/stats`, { by: "hour" }, signal)).data.periods.slice(
        -HOURS,
      ),
    { every: 30_000 },
  )
  const { data } = query
  if (!data)
    return (
      <section className="card pad" aria-label="The last 24 hours">
        {query.error ? (
          <Problem error={query.error} retry={() => void query.refetch()} />
        ) : (
          <span className="bone late" style={{ width: "60%" }} />
        )}
      </section>
    )
  const [delivered, failed, pending] = (["delivered", "failed", "pending"] as const).map(field =>
    sum(data.map(each => each[field])),
  ) as [number, number, number]
  const all = delivered + failed
  const highest = Math.max(1, ...data.map(each => each.delivered + each.failed))
  const slow = most(data.map(({ p95Ms }) => p95Ms))
  const half = most(data.map(({ p50Ms }) => p50Ms))
  return (
    <section className="card pad stack" aria-label="The last 24 hours">
      <div className="row between" style={{ alignItems: "flex-end" }}>
        <div>
          <div className="label">Arrived, last 24 hours</div>
          <div className="money">
            {all === 0 ? "–" : `${((delivered / all) * 100).toFixed(all === delivered ? 0 : 1)} %`}
          </div>
        </div>
        <div className="bars" aria-hidden="true">
          {data.map(each => (
            <i key={each.from} className="bars-one" title={`${each.delivered} arrived, ${each.failed} failed`}>
              <b className="lost" style={{ height: `${(each.failed / highest) * 100}%` }} />
              <b className="arrived" style={{ height: `${(each.delivered / highest) * 100}%` }} />
            </i>
          ))}
        </div>
      </div>
      <Facts
        of={[
          ["Arrived", delivered.toLocaleString()],
          ["Failed", failed.toLocaleString()],
          ["Waiting", pending.toLocaleString()],
          half !== null && ["Half answered within, in the slowest hour", `${half} ms`],
          slow !== null && ["95 % answered within, in the slowest hour", `${slow} ms`],
        ]}
      />
    </section>
  )
}
