/**
 * Makes a release: moves the changes of `.changeset` into `CHANGELOG.md` under the next version, and writes that version wherever one
 * stands. Changesets decides the version by the largest bump that a change asks for.
 *
 * All packages share one version, so nobody needs a table of which SDK fits which service. Changesets sees them as one package: it finds
 * packages by npm's workspaces, and those with lockfiles of their own are none.
 */
import { execFileSync } from "node:child_process"
import { cpSync, existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const manifest = '"version": "VERSION",\n'
const archive = /sluice-(?:sdk-)?VERSION\.tgz/
/** Each file that names the version, with how it does. `npm run docs` writes it into the OpenAPI document. */
export const places: Record<string, string | RegExp> = {
  "package.json": manifest,
  "cli/package.json": manifest,
  "react/package.json": manifest,
  "sdk/package.json": manifest,
  "verify/package.json": manifest,
  // The package itself comes first; in the root's, the command line is a workspace.
  "package-lock.json": /"name": "(?:sluice|@sluice\/cli)",\s+"version": "VERSION"/,
  "sdk/package-lock.json": /"name": "@sluice\/sdk",\s+"version": "VERSION"/,
  "python/pyproject.toml": 'version = "VERSION"\n',
  "ops/chart/Chart.yaml": /^(?:version: VERSION|appVersion: "VERSION")$/m,
  "cli/src/commands/init.ts": '"@sluice/sdk": "^VERSION"',
  "sdk/README.md": archive,
  "docs/developers/sdk.md": archive,
  "docs/operators/operations.md": /sluice-VERSION/,
  "server/test/e2e/package.test.ts": archive,
}

/**
 * Makes the release in the folder `root` on the day `date` (YYYY-MM-DD), with the Changesets installed in the folder `packages`; returns
 * its version. Throws, with nothing written, when no change waits, or a file of {@link places} does not name the version.
 */
export function release(root: string, packages: string, date: string): string {
  const read = (file: string) => readFileSync(join(root, file), "utf8")
  const { version: last } = JSON.parse(read("package.json")) as { version: string }
  const changes = globSync(".changeset/*.md", { cwd: root })
  if (changes.length === 0) throw new Error("No change waits in .changeset: there is nothing to release.")
  const { version, section } = nextRelease(root, packages, last)

  const written = Object.entries(places).map(([file, place]) => {
    const before = read(file)
    const after = before.replace(patternOf(place, last), found => found.replace(last, version))
    if (after === before) throw new Error(`${file} does not name the version ${last} where it should.`)
    return { file, after }
  })
  const changelog = read("CHANGELOG.md")
  const at = changelog.search(/^## /m)
  const place = at < 0 ? changelog.length : at
  written.push({
    file: "CHANGELOG.md",
    after:
      `${changelog.slice(0, place).trimEnd()}\n\n## ${version} (${date})\n\n${section}\n\n${changelog.slice(place)}`
        .trimEnd()
        .concat("\n"),
  })
  for (const { file, after } of written) writeFileSync(join(root, file), after)
  for (const file of changes) rmSync(join(root, file))
  return version
}

/** The next version and its part of the changelog, from Changesets in a folder that has one package and the changes. */
function nextRelease(root: string, packages: string, last: string): { version: string; section: string } {
  const folder = mkdtempSync(join(tmpdir(), "sluice-release-"))
  try {
    cpSync(join(root, ".changeset"), join(folder, ".changeset"), { recursive: true })
    writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "sluice", version: last, private: true }))
    const program = join(packages, "node_modules/@changesets/cli/bin.js")
    execFileSync(process.execPath, [program, "version"], { cwd: folder, stdio: ["ignore", "ignore", "inherit"] })
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { version: string }
    const text = readFileSync(join(folder, "CHANGELOG.md"), "utf8")
    return { version, section: text.slice(text.indexOf("### ")).trim() }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function patternOf(place: string | RegExp, version: string): RegExp {
  const source = typeof place === "string" ? RegExp.escape(place) : place.source
  return new RegExp(source.replaceAll("VERSION", RegExp.escape(version)), "gm")
}

if (import.meta.main) {
  const root = join(import.meta.dirname, "../..")
  if (!existsSync(join(import.meta.dirname, "node_modules")))
    execFileSync("npm", ["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"], {
      cwd: import.meta.dirname,
      stdio: "inherit",
    })
  const version = release(root, import.meta.dirname, new Date().toISOString().slice(0, 10))
  process.stdout.write(
    `${version}: read CHANGELOG.md, run \`npm run docs\` and \`script/test\`, commit, and tag v${version}.\n`,
  )
}
