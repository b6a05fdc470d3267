/** One area from zero, the period before as a thin dashed line; its numbers are also a table. */
import { useEffect, useRef, useState } from "react"
import uPlot from "uplot"
import { formatted, useZone } from "../api/zone.ts"
import { useScheme } from "../shell/theme-choice.ts"
import { amountText } from "./money.tsx"

export interface Point {
  at: string
  amount: string
  before: string
  paid: number
}

const HEIGHT = 180

export default function Chart({ points, currency }: { points: Point[]; currency: string }) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(undefined)
  const [at, setAt] = useState<number | undefined>()
  const scheme = useScheme()
  const zone = useZone()
  const dayOf = (at: string) => formatted("dayAlone", Date.parse(at), zone)
  const hasBefore = points.some(({ before }) => Number(before) > 0)
  useEffect(() => {
    const element = box.current
    if (!element) return
    const style = getComputedStyle(document.documentElement)
    const colour = (name: string) => style.getPropertyValue(name).trim()
    const accent = colour("--accent")
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        padding: [8, 0, 0, 0],
        cursor: { y: false, points: { size: 8, fill: accent }, drag: { x: false, y: false } },
        scales: { x: { time: false }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.08 : 1] } },
        axes: [{ show: false }, { show: false }],
        series: [
          {},
          { stroke: accent, width: 2, fill: `${accent}1c`, points: { show: false } },
          { stroke: colour("--field"), width: 1, dash: [3, 4], points: { show: false } },
        ],
        hooks: { setCursor: [({ cursor }) => setAt(cursor.idx ?? undefined)] },
      },
      [points.map((_, i) => i), points.map(({ amount }) => Number(amount)), points.map(({ before }) => Number(before))],
      element,
    )
    plot.current = chart
    const watch = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }))
    watch.observe(element)
    return () => {
      watch.disconnect()
      chart.destroy()
    }
    // Drawn anew in the other scheme's colours.
  }, [points, scheme])
  const step = (by: number) => {
    const next = Math.max(0, Math.min(points.length - 1, (at ?? points.length - 1) + by))
    plot.current?.setCursor({ left: plot.current.valToPos(next, "x"), top: 0 })
    setAt(next)
  }
  const point = at === undefined ? undefined : points[at]
  return (
    <figure>
      <div className="chart-words num" aria-live="polite">
        {point ? (
          <>
            <b>
              {amountText(point.amount)} {currency}
            </b>{" "}
            on {dayOf(point.at)}
            <span className="quiet"> · {point.paid} paid</span>
          </>
        ) : (
          <span className="quiet">
            <span className="key" /> By day
            {hasBefore && (
              <>
                <span className="key dashed" /> A day of the period before, on average
              </>
            )}
          </span>
        )}
      </div>
      <div
        ref={box}
        className="chart"
        role="slider"
        aria-label={`Received by day, in ${currency}. The numbers follow as a table`}
        aria-valuemin={1}
        aria-valuemax={points.length}
        aria-valuenow={(at ?? points.length - 1) + 1}
        aria-valuetext={point ? `${amountText(point.amount)} ${currency} on ${dayOf(point.at)}` : "No day"}
        tabIndex={0}
        onKeyDown={({ key }) => (key === "ArrowLeft" ? step(-1) : key === "ArrowRight" ? step(1) : undefined)}
      />
      <div className="label num row between days">
        {[0, 0.25, 0.5, 0.75, 1].map(part => {
          const shown = points[Math.round(part * (points.length - 1))]
          return shown ? <span key={part}>{dayOf(shown.at)}</span> : null
        })}
      </div>
      <details>
        <summary className="quiet">The numbers</summary>
        <table className="list plain">
          <thead>
            <tr>
              <th scope="col">Day</th>
              <th scope="col" className="r">
                {currency}
              </th>
              <th scope="col" className="r">
                Paid
              </th>
              <th scope="col" className="r">
                Before
              </th>
            </tr>
          </thead>
          <tbody>
            {points.map(({ at, amount, paid, before }) => (
              <tr key={at}>
                <td>{dayOf(at)}</td>
                <td className="r num">{amountText(amount)}</td>
                <td className="r num">{paid}</td>
                <td className="r num">{amountText(before)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </figure>
  )
}
