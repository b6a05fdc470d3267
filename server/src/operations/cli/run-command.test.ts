// One convention for every command: what an invalid command line, a failure and `--help` print, and how they end.
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, expect, it } from "vitest"
import { plainEnv, root } from "../../../test/e2e/program.ts"
import { parseCommandLine, UsageError } from "./run-command.ts"

const dir = mkdtempSync(join(tmpdir(), "sluice-command-"))
afterAll(() => rmSync(dir, { recursive: true }))

/** Runs `sluice` in an empty folder, without any setting. */
async function sluice(...args: string[]): Promise<{ code: number; out: string; errors: string }> {
  const child = spawn(process.execPath, [join(root, "server/src/operations/cli/sluice.ts"), ...args], {
    cwd: dir,
    env: { ...plainEnv(), DATA_DIR: dir },
    stdio: ["ignore", "pipe", "pipe"],
  })
  let out = ""
  let errors = ""
  child.stdout.on("data", chunk => (out += chunk))
  child.stderr.on("data", chunk => (errors += chunk))
  const [code] = await once(child, "close")
  return { code, out, errors }
}

const commands = [
  "start",
  "migrate",
  "doctor",
  "deploy",
  "backup",
  "invite",
  "merchant",
  "rates",
  "receipts",
  "reencrypt",
  "wallet",
  "signer",
  "recover",
  "verify-address",
]

it("are the commands that `sluice` lists", async () => {
  const { out } = await sluice("--help")
  expect([...out.matchAll(/^ {2}([a-z-]+) {2,}/gm)].map(match => match[1])).toEqual(commands)
  expect((await sluice("-h")).out).toBe(out)
})

it("has the version of the package", async () => {
  const { version } = JSON.parse(readFileSync(new URL("../../../../package.json", import.meta.url), "utf8"))
  expect(await sluice("--version")).toEqual({ code: 0, out: `${version}\n`, errors: "" })
})

it.each(commands)("%s refuses an option that it has not: exit 2, a sentence, and where to read more", async name => {
  expect(await sluice(name, "--bogus")).toEqual({
    code: 2,
    out: "",
    errors: `There is no option --bogus.\nRun \`sluice ${name} --help\` for its usage.\n`,
  })
})

it.each(commands)("%s --help prints its usage and its exit codes", async name => {
  const { code, out, errors } = await sluice(name, "--help")
  expect([code, errors]).toEqual([0, ""])
  expect(out).toMatch(/Exits with 0 when[\s\S]* 2 for an invalid command line/)
  expect(out).toMatch(new RegExp(`^  sluice ${name}\\b`, "m"))
})

it.each([
  ["bogus", [], "There is no command bogus.\nRun `sluice --help` for the list of them."],
  ["start", ["--role", "x"], "--role must be all, api or worker."],
  ["doctor", ["now"], "There is one argument too many: now."],
  ["doctor", ["--json=1"], "--json takes no value."],
  ["deploy", ["--rpc"], "--rpc needs a value."],
  ["backup", [], "Name one file."],
  ["backup", ["."], ". exists already. Name a new file."],
  ["invite", [], "Name one subject, and its issuer if that is not OIDC_ISSUER."],
  ["signer", [], "Name one key."],
  ["signer", ["x"], "The key must start with"],
  ["recover", [], "--rpc is missing: the URL of a node."],
  ["wallet", [], "Name a command."],
  ["receipts", ["rotate-key", "--reason", "list", "--to", "0g"], "rotate-key has no --to."],
  ["receipts", ["--reason", "export", "cost"], "cost has no --reason."],
  ["verify-address", [], "Name one address."],
])("an invalid command line of %s %j is one sentence and exit 2", async (name, args, words) => {
  const { code, out, errors } = await sluice(name, ...args)
  expect([code, out]).toEqual([2, ""])
  expect(errors.startsWith(words), errors).toBe(true)
  expect(errors.trimEnd().split("\n")).toHaveLength(2)
  expect(errors).toContain("--help")
})

it.each([
  ["start", ["--role", "api"], "Sluice can't run. --role api and"],
  ["migrate", [], "Nothing was migrated. There is no database in"],
  ["backup", ["new.tar.gz"], "No backup was made. There is no database in"],
  ["invite", ["carol", "https://id.example"], "Nobody was invited. There is no database in"],
  ["signer", ["web3signer:http://127.0.0.1:1"], "The signer can't be reached: "],
])("a failure of %s %j is its sentence and exit 1", async (name, args, words) => {
  const { code, out, errors } = await sluice(name, ...args)
  expect([code, out]).toEqual([1, ""])
  expect(errors.startsWith(words), errors).toBe(true)
  expect(errors.trimEnd().split("\n")).toHaveLength(1)
})

it("says of an argument what is wrong with it, where Node has several sentences", () => {
  const parse = (...args: string[]) =>
    parseCommandLine(args, { options: { rpc: { type: "string" } }, allowPositionals: true }).values
  expect(parse("--rpc", "x", "-h")).toEqual({ rpc: "x", help: true })
  for (const [args, words] of [
    [["--bogus=1"], "There is no option --bogus."],
    [["-x"], "There is no option -x."],
    [["--rpc"], "--rpc needs a value."],
    [["--rpc", "--help"], "--rpc needs a value."],
    [["--help=1"], "--help takes no value."],
  ] as const)
    expect(() => parse(...args)).toThrow(new UsageError(words))
})
