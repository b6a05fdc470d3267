/**
 * Makes the package that operators install, `sluice-VERSION.tgz`: the server and most of the packages that it uses as a few files
 * of JavaScript, its schema and migrations, the built pages, the command `sluice`, the files of this folder, and a lockfile with exactly our
 * versions of the other packages. Each start of 450 files of ours and 1,300 of packages took 1.6 s of CPU and 40 MB more.
 */
import { execFile } from "node:child_process"
import { cp, mkdir, readdir, readFile, realpath, rename, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { ALWAYS_APART, bundle } from "./bundle.ts"

const root = join(import.meta.dirname, "..")
/** Only the sandbox needs them. Whoever wants one of a package installs them beside it. */
const ofSandbox = ["@foundry-rs/anvil", "oidc-provider"]

interface Manifest {
  version: string
  dependencies: Record<string, string>
  optionalDependencies?: Record<string, string>
  devDependencies: Record<string, string>
}

const run = promisify(execFile)
const readManifest = async (path: string): Promise<Manifest> => JSON.parse(await readFile(join(root, path), "utf8"))

/** Makes the package in the folder `out`, where it also stays unpacked as `package`; returns the path of the archive. */
export async function pack(out: string): Promise<string> {
  const target = join(out, "package")
  await rm(target, { recursive: true, force: true })
  await mkdir(target, { recursive: true })
  const copies = {
    "server/src/platform/db/schema": "server/src/platform/db/schema",
    "server/src/platform/db/migrations": "server/src/platform/db/migrations",
    docs: "docs",
    LICENSE: "LICENSE",
    ops: "ops",
  }
  const ofPages = await copyPages(target)
  await Promise.all([
    compile(target, ofPages),
    writeManifest(target),
    cp(join(root, "ops/bin"), join(target, "bin"), { recursive: true }),
    cp(join(root, "ops/README.md"), join(target, "README.md")),
    ...Object.entries(copies).map(([from, to]) => cp(join(root, from), join(target, to), { recursive: true })),
  ])
  // For a checkout alone.
  for (const name of ["ops/bin", "ops/bundle.ts", "ops/pack.ts", "ops/pack-cli.ts", "ops/README.md"])
    await rm(join(target, name), { recursive: true })
  // What an operator who runs compose from here has put there.
  for (const name of ["ops/secrets", "ops/.env", "ops/sluice.env"])
    await rm(join(target, name), { recursive: true, force: true })
  const { stdout } = await run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", out], {
    cwd: target,
  })
  return join(out, (JSON.parse(stdout) as { filename: string }[])[0]?.filename ?? "")
}

/** The folder of the program in the package. */
const PROGRAM = "server"

async function compile(target: string, ofPages: readonly string[]): Promise<void> {
  const modules = await bundle({
    programs: { sluice: "server/src/operations/cli/sluice.ts" },
    folder: join(target, PROGRAM),
    apart: ofSandbox,
    addressOf: path => `new URL(${JSON.stringify(join("..", path))}, import.meta.url).href`,
    chunks: "[name].js",
  })
  await writeParts(target, await packagesOf([...modules, ...ofPages]))
}

interface Part {
  name: string
  version: string
  license: string
  terms: string
}

/** The packages that these modules are of, sorted by name. */
export async function packagesOf(modules: readonly string[]): Promise<Part[]> {
  const folders = new Set(modules.flatMap(path => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(path)?.[0] ?? []))
  const parts = await Promise.all(
    [...folders].map(async folder => {
      const { name, version, license }: Part = JSON.parse(await readFile(join(folder, "package.json"), "utf8"))
      const entry = (await readdir(folder, { withFileTypes: true })).find(each =>
        /^(licen[cs]e|copying)/i.test(each.name),
      )
      // Pagefind has a folder of them.
      const file = entry?.isDirectory() ? join(entry.name, "LICENSE") : entry?.name
      return { name, version, license, terms: file === undefined ? "" : await readFile(join(folder, file), "utf8") }
    }),
  )
  return parts.sort((a, b) => (`${a.name}@${a.version}` < `${b.name}@${b.version}` ? -1 : 1))
}

/** The licenses of these packages, as one text. */
export const termsOf = (parts: readonly Part[]): string =>
  parts
    .map(({ name, version, license, terms }) => `${name} ${version} (${license})\n\n${terms.trim()}\n`)
    .join(`\n${"-".repeat(80)}\n\n`)

/**
 * Writes what is bundled: `THIRD_PARTY_LICENSES.txt`, as most of these licenses ask for it, and `sbom.cdx.json`, by which scanners
 * of images find known faults in packages that no lockfile names.
 */
async function writeParts(target: string, parts: readonly Part[]): Promise<void> {
  await writeFile(join(target, "THIRD_PARTY_LICENSES.txt"), termsOf(parts))
  const components = parts.map(({ name, version, license }) => ({
    type: "library",
    name,
    version,
    purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
    licenses: [{ license: { id: license } }],
  }))
  const sbom = { bomFormat: "CycloneDX", specVersion: "1.5", version: 1, components }
  await writeFile(join(target, "sbom.cdx.json"), `${JSON.stringify(sbom, undefined, 2)}\n`)
}

/** What is in the files of the documents' site. */
const ofSite = ["@astrojs/starlight", "astro", "pagefind", "@pagefind/default-ui"]

/** Answers a file of each package that the console and the documents' site are built of. */
async function copyPages(target: string): Promise<string[]> {
  await run(process.execPath, [join(root, "web/build.ts")])
  await run(process.execPath, [join(root, "web/src/console/build.ts")])
  await run(process.execPath, [join(root, "site/build.ts")])
  for (const built of ["web/dist/current", "web/dist/console/current", "web/dist/docs/current"])
    await cp(await realpath(join(root, built)), join(target, built), { recursive: true })
  const manifest = await readFile(join(root, "web/dist/console/current/manifest.json"), "utf8")
  const { packages }: { packages: string[] } = JSON.parse(manifest)
  return [
    ...packages.map(folder => join(root, "web/src/console", folder, "package.json")),
    ...ofSite.map(name => join(root, "site/node_modules", name, "package.json")),
  ]
}

/**
 * Writes `package.json` and `npm-shrinkwrap.json`, by which npm installs what our own lockfile names. npm itself takes from
 * that lockfile what the server needs, without a registry.
 */
async function writeManifest(target: string): Promise<void> {
  const [{ version }, server] = await Promise.all([readManifest("package.json"), readManifest("server/package.json")])
  const manifest = {
    name: "sluice",
    version,
    description: "Self-hosted stablecoin payments for EVM chains",
    license: "Apache-2.0",
    type: "module",
    bin: { sluice: "bin/sluice.js" },
    engines: { node: ">=26" },
    dependencies: Object.fromEntries(
      Object.entries(server.dependencies).filter(([name]) => ALWAYS_APART.includes(name)),
    ),
    // The clients of KMSs, for whoever keeps keys there; `--omit=optional` leaves them out.
    optionalDependencies: server.optionalDependencies,
    peerDependencies: Object.fromEntries(ofSandbox.map(name => [name, server.devDependencies[name]])),
    peerDependenciesMeta: Object.fromEntries(ofSandbox.map(name => [name, { optional: true }])),
  }
  await writeFile(join(target, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`)
  await cp(join(root, "package-lock.json"), join(target, "package-lock.json"))
  // With the addresses of the tarballs, whatever npm is set to here: without them an install asks for every package's versions.
  const flags = ["--offline", "--ignore-scripts", "--no-audit", "--omit-lockfile-registry-resolved=false"]
  await run("npm", ["install", "--package-lock-only", ...flags], { cwd: target })
  await rename(join(target, "package-lock.json"), join(target, "npm-shrinkwrap.json"))
}

if (import.meta.main) process.stdout.write(`${await pack(join(root, "dist"))}\n`)
