/** Prometheus' own checker of rules: the one in the PATH, or Debian's, unpacked beside the npm packages without installing it. */
import { execFile } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { root } from "./e2e/program.ts"

const run = promisify(execFile)
const folder = join(root, "node_modules/.promtool")
const unpacked = join(folder, "usr/bin/promtool")

/** The path of promtool, or what keeps it from being there. */
export async function findPromtool(): Promise<{ program: string } | { missing: string }> {
  for (const program of ["promtool", unpacked])
    if (await run(program, ["--version"]).then(Boolean, () => false)) return { program }
  const scratch = mkdtempSync(join(tmpdir(), "sluice-promtool-"))
  try {
    await run("apt-get", ["download", "prometheus"], { cwd: scratch })
    const [archive = ""] = readdirSync(scratch)
    mkdirSync(folder, { recursive: true })
    await run("dpkg", ["-x", join(scratch, archive), folder])
    return existsSync(unpacked) ? { program: unpacked } : { missing: "Debian's package prometheus has no promtool" }
  } catch (error) {
    return { missing: `promtool is missing: apt-get install prometheus (${(error as Error).message})` }
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}
