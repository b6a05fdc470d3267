import { expect, it } from "vitest"
import { openLog, toggleDebug } from "./log.ts"

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
