/** Formats the output of `sluice doctor` for a person. Pure. */
import { wrapped } from "../../platform/config/wrapped-text.ts"
import { type Finding, isBad, type Level } from "../doctor/finding.ts"

/** The layout of the text: the width in columns, and whether levels are coloured. */
export interface Layout {
  width: number
  coloured: boolean
}

const colours: Record<Level, number> = { ok: 32, note: 36, alarm: 33, fault: 31 }
const LEVEL_WIDTH = 7
const order: Level[] = ["fault", "alarm", "note", "ok"]

/** Formats the findings by part, the worst first, followed by a sentence with their totals. */
export function findingsText(findings: readonly Finding[], layout: Layout): string {
  const parts = [...Map.groupBy(findings, each => each.part)].map(([part, found]) => {
    const sorted = [...found].sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level))
    return [part, ...sorted.flatMap(each => linesOf(each, layout))].join("\n")
  })
  return [...parts, sumOf(findings)].join("\n\n")
}

function linesOf({ level, message, todo }: Finding, { width, coloured }: Layout): string[] {
  const indent = " ".repeat(2 + LEVEL_WIDTH)
  const room = Math.max(30, width - indent.length)
  const word = level.padEnd(LEVEL_WIDTH)
  const [first = "", ...rest] = wrapped(`${message}${/[.!?]$/.test(message) ? "" : "."}`, room)
  const advice = todo === undefined ? [] : wrapped(todo, room - 2).map((line, i) => `${i === 0 ? "→ " : "  "}${line}`)
  const label = coloured ? `\u001b[${colours[level]}m${word}\u001b[0m` : word
  return [`  ${label}${first}`, ...[...rest, ...advice].map(line => indent + line)]
}

/** A sentence that says whether the service can run, and how many findings need a person. */
function sumOf(findings: readonly Finding[]): string {
  const count = (level: Level) => findings.filter(each => each.level === level).length
  const many = (n: number, word: string) => `${n} ${word}${n === 1 ? "" : "s"}`
  if (!findings.some(isBad)) return "All checks passed."
  const faults = count("fault")
  const alarms = count("alarm")
  const list = [...(faults ? [many(faults, "fault")] : []), ...(alarms ? [many(alarms, "alarm")] : [])].join(" and ")
  return faults > 0
    ? `${list}: the service does not start with these settings.`
    : `${list}: the service starts, and /readyz shows ${alarms === 1 ? "it" : "them"} until ${alarms === 1 ? "it is" : "they are"} fixed.`
}
