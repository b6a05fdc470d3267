/** Shows how far a long task has got, in one line at the end of the standard error that is redrawn again and again. */

/** The progress line of one task. */
export interface Progress {
  /** Sets how much is done and, if known, out of how much. */
  set(done: number | string, of?: number): void
  /** Removes the line. */
  end(): void
}

const BAR = 24
const TICK_MS = 1_000
const CLEAR = "\r\u001b[K"

/** The line on the screen, which makes room for what is printed. There is one task at a time. */
let shown: { draw: () => void } | undefined

/**
 * Shows a line for this task. Shows nothing with `isJson`, or if the standard error is not a terminal with a movable
 * cursor.
 */
export function openProgress(text: string, isJson: boolean): Progress {
  const { stderr } = process
  if (isJson || !stderr.isTTY || process.env.TERM === "dumb") return { set: () => {}, end: () => {} }
  const startedAt = performance.now()
  let facts = ""
  const draw = () => {
    const seconds = Math.floor((performance.now() - startedAt) / 1_000)
    stderr.write(`${CLEAR}${`${text}  ${facts}${seconds} s`.slice(0, (stderr.columns || 80) - 1)}`)
  }
  const timer = setInterval(draw, TICK_MS).unref()
  const line = { draw }
  shown = line
  draw()
  return {
    set: (done, of) => {
      facts = of ? `${barOf(Number(done), of)}  ` : `${done}  `
      draw()
    },
    end: () => {
      clearInterval(timer)
      if (shown === line) shown = undefined
      stderr.write(CLEAR)
    },
  }
}

/** Calls `write` so that its text appears above the line. */
export function aboveProgress(write: () => void): void {
  if (shown) process.stderr.write(CLEAR)
  write()
  shown?.draw()
}

/** Draws a bar for a number of items. */
function barOf(done: number, of: number): string {
  const part = Math.min(1, done / of)
  const full = Math.floor(part * BAR)
  return `[${"#".repeat(full)}${"-".repeat(BAR - full)}] ${done} of ${of}`
}
