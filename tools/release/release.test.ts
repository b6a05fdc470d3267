// A release in a copy of the files that name the version, by the stock Changesets.
import { execFileSync } from "node:child_process"
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { afterEach, beforeEach, expect, it } from "vitest"
import { root } from "../../server/test/e2e/program.ts"
import { installPackages } from "../../server/test/packages.ts"
import { places, release } from "./release.ts"

let folder: string
let last: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "sluice-releases-"))
  for (const file of [...Object.keys(places), ".changeset/config.json", "CHANGELOG.md"]) {
    mkdirSync(join(folder, dirname(file)), { recursive: true })
    cpSync(join(root, file), join(folder, file))
  }
  last = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).version
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const read = (file: string) => readFileSync(join(folder, file), "utf8")
const change = (name: string, bump: string, text: string) =>
  writeFileSync(join(folder, `.changeset/${name}.md`), `---\n"sluice": ${bump}\n---\n\n${text}\n`)

it("gives all packages the largest bump, and the changelog the changes", async () => {
  const packages = await installPackages("tools/release")
  const before = read("CHANGELOG.md")
  change("late-rates", "patch", "Rates that come late are read the next hour.")
  change("gift-cards", "major", "Gift cards are sold like checkouts.")
  const version = release(folder, packages, "2031-05-06")

  expect(version).toBe(`${Number(last.split(".")[0]) + 1}.0.0`)
  for (const file of Object.keys(places)) expect(read(file), file).toContain(version)
  const intro = before.split(/^## /m)[0] ?? ""
  const changelog = read("CHANGELOG.md")
  expect(
    changelog.startsWith(
      `${intro.trimEnd()}\n\n## ${version} (2031-05-06)\n\n### Major Changes\n\n- Gift cards are sold`,
    ),
  ).toBe(true)
  expect(changelog).toContain("- Rates that come late are read the next hour.")
  expect(existsSync(join(folder, ".changeset/gift-cards.md"))).toBe(false)
})

it("writes nothing where nothing changed, or a file does not name the version", async () => {
  const packages = await installPackages("tools/release")
  expect(() => release(folder, packages, "2031-05-06")).toThrow("nothing to release")
  change("late-rates", "patch", "Rates that come late are read the next hour.")
  writeFileSync(join(folder, "python/pyproject.toml"), "[project]\n")
  const manifest = read("package.json")
  expect(() => release(folder, packages, "2031-05-06")).toThrow("python/pyproject.toml does not name the version")
  expect([read("package.json"), existsSync(join(folder, ".changeset/late-rates.md"))]).toEqual([manifest, true])
})

it("knows every package that has a version", () => {
  const files = execFileSync("git", ["ls-files", "package.json", "*/package.json"], { cwd: root, encoding: "utf8" })
  const versioned = files
    .trim()
    .split("\n")
    .filter(file => "version" in JSON.parse(readFileSync(join(root, file), "utf8")))
  expect(versioned.filter(file => !(file in places))).toEqual([])
})
