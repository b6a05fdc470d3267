// The scripts of this folder of sources, before anything of it is installed and after.
import { execFileSync, spawnSync } from "node:child_process"
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { plainEnv, root } from "./e2e/program.ts"

let fresh: string
beforeAll(() => {
  fresh = mkdtempSync(join(tmpdir(), "sluice-fresh-"))
  cpSync(join(root, "script"), join(fresh, "script"), { recursive: true })
  cpSync(join(root, "package-lock.json"), join(fresh, "package-lock.json"))
  // Neither Node nor npm can be started there.
  mkdirSync(join(fresh, "bin"))
  for (const name of ["node", "npm"]) writeFileSync(join(fresh, "bin", name), "#!/bin/sh\nexit 97\n", { mode: 0o755 })
})
afterAll(() => rmSync(fresh, { recursive: true }))

const run = (dir: string, script: string, args: string[], env: Record<string, string> = {}): string =>
  execFileSync(join(dir, "script", script), args, { cwd: dir, env: { ...plainEnv(), ...env }, encoding: "utf8" })

describe("--help of a script in a new clone", () => {
  const scripts = readdirSync(join(root, "script")).filter(name => !["install", "help"].includes(name))
  it.each(scripts)("%s answers, and installs, builds and starts nothing", name => {
    const before = readdirSync(fresh)
    const out = run(fresh, name, ["--help"], { PATH: `${join(fresh, "bin")}:${process.env.PATH}` })
    expect(out.length).toBeGreaterThan(60)
    expect(out).not.toMatch(/^#/m)
    if (name === "server") expect(out).toMatch(/script\/server \[--reset\][\s\S]*docs\/operators\/settings\.md/)
    expect(readdirSync(fresh)).toEqual(before)
  })
})

describe("--help of the installed service", () => {
  it("lists the settings", () => {
    expect(run(root, "server", ["--help"])).toMatch(/sluice start \[--reset\][\s\S]*SECRET_KEY_FILE/)
  })
})

describe("the data folder of a command in the sources", () => {
  const refusal = (args: string[], env: Record<string, string> = {}) => {
    const environment = { ...plainEnv(), ...env }
    return spawnSync(join(root, "script/sluice"), ["migrate", ...args], { env: environment, encoding: "utf8" }).stderr
  }
  it("is that of the settings' file, and that of the environment before it", () => {
    const file = join(fresh, "env")
    writeFileSync(file, `DATA_DIR=${fresh}/of-the-file\n`)
    for (const args of [["--env-file", file], [`--env-file=${file}`]]) {
      expect(refusal(args)).toContain(`There is no database in ${fresh}/of-the-file.`)
      expect(refusal(args, { DATA_DIR: `${fresh}/of-env` })).toContain(`There is no database in ${fresh}/of-env.`)
    }
  })
})
