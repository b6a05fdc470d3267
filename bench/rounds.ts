/**
 * Runs a bench several times, each run in processes of its own. With `--against COMMIT`, runs over that commit's code
 * take turns with them, so that both meet the same machine. Prints each figure's median and range, its ratio to its
 * limit, and its ratio to the other commit.
 */
import { execFileSync, spawnSync } from "node:child_process"
import { cpSync, existsSync, mkdtempSync, rmSync, symlinkSync } from "node:fs"
import { cpus, tmpdir } from "node:os"
import { basename, join } from "node:path"
import { parseArgs } from "node:util"

/** The figures of one run, by name. */
export type Figures = Record<string, number>

/** How a figure is shown and judged. */
export interface Figure {
  unit: string
  /** The name of the figure of the same run that it is divided by, such as the bare library's. */
  limit?: string
}

const RUNS = 5
const ROOT = join(import.meta.dirname, "..")
const say = (text: string) => process.stdout.write(`${text}\n`)

/**
 * Runs `measure` five times, or as often as `--runs` says, and prints the table; under `--once` it measures once and
 * prints JSON, which is how it calls itself. `file` is the bench's own, `import.meta.filename`.
 */
export async function rounds(file: string, figures: Record<string, Figure>, measure: () => Promise<Figures>) {
  const { values } = parseArgs({
    options: { once: { type: "boolean" }, runs: { type: "string" }, against: { type: "string" } },
  })
  if (values.once) {
    say(JSON.stringify(await measure()))
    process.exit(0)
  }
  const name = basename(file)
  const runs = Number(values.runs ?? RUNS)
  const base = values.against === undefined ? undefined : checkout(values.against)
  const here: Figures[] = []
  const there: Figures[] = []
  try {
    for (let run = 0; run < runs; run++) {
      // The order changes in each run, as the second of a pair finds warmer caches.
      const order = run % 2 === 0 ? ["here", "there"] : ["there", "here"]
      for (const which of order) {
        if (which === "here") here.push(once(ROOT, name))
        else if (base) there.push(once(base, name))
      }
    }
  } finally {
    if (base) drop(base)
  }
  print(figures, here, there, values.against)
}

/** One run with the code of a checkout. */
function once(root: string, name: string): Figures {
  const { stdout, status } = spawnSync(process.execPath, [join(root, "bench", name), "--once"], {
    cwd: root,
    stdio: ["ignore", "pipe", "inherit"],
    encoding: "utf8",
  })
  if (status !== 0) throw new Error(`a run of ${name} in ${root} ended with ${status}`)
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as Figures
}

/** That commit's code with today's benches and Postgres' settings, so that both are measured in the same way. */
function checkout(commit: string): string {
  const folder = mkdtempSync(join(tmpdir(), "sluice-against-"))
  execFileSync("git", ["worktree", "add", "--quiet", "--detach", "--force", folder, commit], { cwd: ROOT })
  for (const part of ["bench", "server/test/postgres.ts"])
    cpSync(join(ROOT, part), join(folder, part), { recursive: true, force: true })
  for (const part of ["", "server", "web", "contracts"])
    if (existsSync(join(ROOT, part, "node_modules")))
      symlinkSync(join(ROOT, part, "node_modules"), join(folder, part, "node_modules"))
  return folder
}

function drop(folder: string): void {
  execFileSync("git", ["worktree", "remove", "--force", folder], { cwd: ROOT })
  rmSync(folder, { recursive: true, force: true })
}

function print(figures: Record<string, Figure>, here: Figures[], there: Figures[], against: string | undefined): void {
  const runs = here.length === 1 ? "one run" : `${here.length} runs`
  say(`${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.versions.node}; median of ${runs} (range)\n`)
  const show = (value: number) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3))
  for (const [name, { unit, limit }] of Object.entries(figures)) {
    const ours = valuesOf(here, name)
    const range = `(${show(ours[0] ?? Number.NaN)} to ${show(ours.at(-1) ?? Number.NaN)})`
    const ratios = limit ? here.map(each => (each[name] ?? Number.NaN) / (each[limit] ?? Number.NaN)) : []
    const ofLimit = limit ? `   ${median(ratios.sort((a, b) => a - b)).toFixed(2)} of ${limit}` : ""
    const before = valuesOf(there, name)
    const ofBefore =
      before.length > 0
        ? `   ${(median(ours) / median(before)).toFixed(2)} of ${against} (${show(median(before))})`
        : ""
    say(`${name.padEnd(44)}${show(median(ours)).padStart(8)} ${unit} ${range.padEnd(18)}${ofLimit}${ofBefore}`)
  }
}

const valuesOf = (all: Figures[], name: string): number[] =>
  all.map(each => each[name] ?? Number.NaN).sort((a, b) => a - b)

const median = (sorted: number[]): number => sorted[Math.floor((sorted.length - 1) / 2)] ?? Number.NaN
