/** Preloaded into a program by `--import`: its wall clock is ahead by the milliseconds in the file that CLOCK_AHEAD_FILE names. */
import { readFileSync } from "node:fs"

const file = process.env.CLOCK_AHEAD_FILE ?? ""
const TrueDate = Date
const aheadMs = (): number => Number(readFileSync(file, "utf8"))

globalThis.Date = class extends TrueDate {
  constructor(...args: []) {
    if (args.length === 0) super(TrueDate.now() + aheadMs())
    else super(...args)
  }
  static override now(): number {
    return TrueDate.now() + aheadMs()
  }
} as DateConstructor
