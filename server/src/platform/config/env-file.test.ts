// Files of settings: nothing in a value is special, and nothing is skipped without a word.
import { spawnSync } from "node:child_process"
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, expect, it } from "vitest"
import { parseCommandLine } from "../../operations/cli/run-command.ts"
import { loadEnvFile, parseEnvFile } from "./env-file.ts"

const dir = mkdtempSync(join(tmpdir(), "sluice-env-"))
afterAll(() => rmSync(dir, { recursive: true }))
function file(text: string): string {
  const path = join(mkdtempSync(join(dir, "f-")), "env")
  writeFileSync(path, text)
  return path
}

it("keeps every character of a value, and runs none of it", () => {
  const mark = join(dir, "ran")
  const value = `https://rpc.example/?a=1&b=$(touch ${mark})\`touch ${mark}\`;$HOME #x 'y' "z" \\n=é`
  expect(parseEnvFile(`# A comment=1\n\n  RPC_BASE=${value}\r\nEMPTY=\n`)).toEqual({ RPC_BASE: value, EMPTY: "" })
  const path = file(`RPC_BASE=${value}\n`)
  const env: Record<string, string | undefined> = {}
  loadEnvFile(path, env)
  expect([env, existsSync(mark)]).toEqual([{ RPC_BASE: value }, false])
  // What the documents said before: a shell runs it.
  spawnSync("sh", ["-c", `set -a; . ${path}`])
  expect(existsSync(mark)).toBe(true)
})

it("takes off quotes around a whole value, and no others", () => {
  const text = `A="x y"\nB='x'\nC="x'\nD="\nE=a"b"\nF=""`
  expect(parseEnvFile(text)).toEqual({ A: "x y", B: "x", C: `"x'`, D: `"`, E: `a"b"`, F: "" })
})

it("changes nothing that is set, even to nothing, and takes the first file's value and a file's last", () => {
  const env: Record<string, string | undefined> = { SET: "1", EMPTY: "" }
  loadEnvFile(file("SET=2\nEMPTY=2\nNEW=1\nNEW=2\n"), env)
  loadEnvFile(file("NEW=3\nMORE=1\n"), env)
  expect(env).toEqual({ SET: "1", EMPTY: "", NEW: "2", MORE: "1" })
})

it.each(["export A=1", "A", "=1", "1A=1", "A =1"])("refuses the line %s by its number, without repeating it", line => {
  expect(() => parseEnvFile(`OK=1\n${line}\n`)).toThrow(/^has no NAME=VALUE in line 2$/)
})

it("is an option of every command, which names the file that it can't use", () => {
  const args = ["--env-file", join(dir, "nothing")]
  expect(() => parseCommandLine(args, {})).toThrow(`--env-file ${dir}/nothing can't be read: ENOENT.`)
  const bad = file("A\n")
  expect(() => parseCommandLine(["--env-file", bad], {})).toThrow(`--env-file ${bad} has no NAME=VALUE in line 1.`)
  expect(parseCommandLine([`--env-file=${file("")}`], {}).values).toEqual({})
})
