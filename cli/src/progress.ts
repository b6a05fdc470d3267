/** How far long work is: one line at the end of the standard error, drawn again and again. */

/** The line of one work. */
export interface Progress {
  /** What is done, and of how much where that is known. */
  set(done: number | string, of?: number): void
  /** Removes the line. */
  end(): void
}

const BAR = 24
const TICK_MS = 1_000
const CLEAR = "\r\u001b[K"

/** The line on the screen, which makes room for what is printed. There is one work at a time. */
let shown: { draw: () => void } | undefined

/** Shows a line for this work. Shows nothing where the standard error is no terminal that can move its cursor, nor where `isJson`. */
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

/** Prints by `write`, above the line. */
export function aboveProgress(write: () => void): void {
  if (shown) process.stderr.write(CLEAR)
  write()
  shown?.draw()
}

/** The bar of a number of things. */
function barOf(done: number, of: number): string {
  const part = Math.min(1, done / of)
  const full = Math.floor(part * BAR)
  return `[${"#".repeat(full)}${"-".repeat(BAR - full)}] ${done} of ${of}`
}
