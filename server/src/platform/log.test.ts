import { execFileSync } from "node:child_process"
import { setImmediate as endOfTurn } from "node:timers/promises"
import { expect, it } from "vitest"
import { openLog, requestLog, toggleDebug } from "./log.ts"

it("names its levels, and switches to debug and back while it runs", () => {
  const lines: Record<string, unknown>[] = []
  const log = openLog("error", { write: line => void lines.push(JSON.parse(line)) })
  const logAll = () => {
    for (const level of ["error", "info", "debug"] as const) log[level](`of ${level}`)
    return lines.splice(0).map(line => `${line.level}: ${line.msg}`)
  }
  expect(logAll()).toEqual(["error: of error"])
  toggleDebug(log, "error")
  expect(logAll()).toEqual(["info: the log level has changed", "error: of error", "info: of info", "debug: of debug"])
  toggleDebug(log, "error")
  expect(logAll()).toEqual(["error: of error"])
})

it("writes the lines of requests together at the end of a turn, and before the process ends", async () => {
  const written: string[] = []
  const log = openLog("info", { write: text => void written.push(text) })
  const requests = requestLog(log)
  requests.info("one")
  requests.info("two")
  log.info("at once")
  await endOfTurn()
  const messages = written.map(text =>
    text
      .trim()
      .split("\n")
      .map(line => JSON.parse(line).msg),
  )
  expect(messages).toEqual([["at once"], ["one", "two"]])
  const program = `
    const { openLog, requestLog } = await import("${import.meta.dirname}/log.ts")
    requestLog(openLog("info")).info("the last")
    process.exit()`
  const output = execFileSync(process.execPath, ["--input-type=module", "--eval", program], { encoding: "utf8" })
  expect(output).toContain("the last")
})
