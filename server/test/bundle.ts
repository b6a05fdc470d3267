/**
 * The programs that tests start, as a few files. From the sources a start loads 1,190 modules and takes 0.57 s of CPU, from the bundle 330
 * and 0.27 s; tests start them some 200 times. It is for whole runs: a file that is run alone starts the sources, and so does
 * everything that is no program of this list; `e2e/package.test.ts` starts what operators get, which is not bundled either.
 */
import { writeFileSync } from "node:fs"
import { basename, join } from "node:path"
import { pathToFileURL } from "node:url"
import { rolldown } from "rolldown"

const root = new URL("../../", import.meta.url)

/** What is started as `node PATH`. */
const programs = [
  "server/src/cli/sluice.ts",
  "server/src/main.ts",
  "server/test/bill.ts",
  "server/test/deliver.ts",
  "server/test/chaos/escrow-process.ts",
  "server/test/chaos/payout-worker.ts",
  "server/test/chaos/x402-api.ts",
  "server/test/e2e/limited-api.ts",
]

/**
 * These stay where they are: they find files beside their own, test programs change the driver before they start, and the rest is rarely
 * loaded.
 */
const apart = /^(@aws-sdk|@electric-sql|@fastify\/swagger-ui|google-auth-library|ioredis|pg|pino|tiny-secp256k1)(\/|$)/

/**
 * Makes them in `folder`, and returns the address of a module that a program is started with (`node --import`) to be loaded from there. npm
 * is started with it too, by an older Node, which goes on without.
 */
export async function bundlePrograms(folder: string): Promise<string> {
  const addressOf = (path: string) => new URL(path, root).href
  const nameOf = (path: string) => basename(path, ".ts")
  const bundle = await rolldown({
    input: Object.fromEntries(programs.map(path => [nameOf(path), path])),
    platform: "node",
    cwd: root.pathname,
    // Whole, as modules of packages have effects when they are loaded; and as this Node runs them.
    treeshake: false,
    transform: { target: "esnext" },
    external: id => apart.test(id),
    logLevel: "silent",
    plugins: [{ name: "own-address", transform: (code, id) => withOwnAddress(code, id) }],
  })
  await bundle.write({ dir: folder, format: "esm", entryFileNames: "[name].js", chunkFileNames: "shared-[hash].js" })
  await bundle.close()
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }')
  const bundled = programs.map(path => [addressOf(path), pathToFileURL(join(folder, `${nameOf(path)}.js`)).href])
  const hook = join(folder, "use.js")
  writeFileSync(
    hook,
    `import module from "node:module"
const programs = new Map(${JSON.stringify(bundled)})
const folder = ${JSON.stringify(pathToFileURL(`${folder}/`).href)}
const parentURL = ${JSON.stringify(addressOf("server/src/main.ts"))}
module.registerHooks?.({
  resolve: (name, context, next) => {
    const url = context.parentURL === undefined ? programs.get(name) : undefined
    if (url) return { url, format: "module", shortCircuit: true }
    // What stays apart is found from where the sources are.
    const fromBundle = context.parentURL?.startsWith(folder) && !name.startsWith(".")
    return next(name, fromBundle ? { ...context, parentURL } : context)
  },
})
`,
  )
  return pathToFileURL(hook).href
}

/** A source finds the files beside it by its own address, which is another one in the bundle. */
function withOwnAddress(code: string, id: string): string | undefined {
  const { href } = pathToFileURL(id)
  return href.startsWith(new URL("server/", root).href)
    ? code.replaceAll("import.meta.url", JSON.stringify(href))
    : undefined
}
