/**
 * Makes the package that operators install, `sluice-VERSION.tgz`: the compiled server with its migrations, the built pages, the
 * command `sluice`, the files of this folder, and a lockfile with exactly the packages of ours. Node does not run TypeScript
 * inside `node_modules`, so the package has JavaScript.
 */
import { execFile } from "node:child_process"
import { cp, mkdir, readFile, realpath, rename, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"

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
    "server/src/db/migrations": "server/src/db/migrations",
    docs: "docs",
    LICENSE: "LICENSE",
    ops: "ops",
  }
  await Promise.all([
    // The compiler copies our own package.json, because the service reads its version.
    compile(target).then(() => writeManifest(target)),
    copyPages(target),
    cp(join(root, "ops/bin"), join(target, "bin"), { recursive: true }),
    cp(join(root, "ops/README.md"), join(target, "README.md")),
    ...Object.entries(copies).map(([from, to]) => cp(join(root, from), join(target, to), { recursive: true })),
  ])
  // For a checkout alone.
  for (const name of ["ops/bin", "ops/pack.ts", "ops/README.md", "docs/decisions"])
    await rm(join(target, name), { recursive: true })
  const { stdout } = await run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", out], {
    cwd: target,
  })
  return join(out, (JSON.parse(stdout) as { filename: string }[])[0]?.filename ?? "")
}

/** Types are what `npm run check` is for: to check them again took 12 of the 13 s of CPU, for the same files. */
async function compile(target: string): Promise<void> {
  const args = ["-p", join(root, "server/tsconfig.package.json"), "--outDir", target, "--noCheck"]
  await run(join(root, "node_modules/.bin/tsc"), args)
}

async function copyPages(target: string): Promise<void> {
  await run(process.execPath, [join(root, "web/build.ts")])
  const current = await realpath(join(root, "web/dist/current"))
  await cp(current, join(target, "web/dist/current"), { recursive: true })
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
    dependencies: server.dependencies,
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
