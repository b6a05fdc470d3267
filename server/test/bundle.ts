/**
 * The programs that tests start, as a few files. From the sources a start loads 1,190 modules and takes 0.57 s of CPU, from the bundle 330
 * and 0.27 s; tests start them some 200 times. It is for whole runs: a file that is run alone starts the sources, and so does
 * everything that is no program of this list. What operators get is bundled in the same way (`e2e/package.test.ts`).
 */
import { writeFileSync } from "node:fs"
import { basename, join } from "node:path"
import { pathToFileURL } from "node:url"
import { bundle } from "../../ops/bundle.ts"

const root = new URL("../../", import.meta.url)

/** What is started as `node PATH`. */
const programs = [
  "server/src/operations/cli/sluice.ts",
  "server/src/main.ts",
  "server/test/bill.ts",
  "server/test/deliver.ts",
  "server/test/pull.ts",
  "server/test/chaos/escrow-process.ts",
  "server/test/chaos/payout-worker.ts",
  "server/test/chaos/x402-api.ts",
  "server/test/e2e/limited-api.ts",
]

/** Test programs change the driver before they start. */
const apart = ["pg"]

/**
 * Makes them in `folder`, and returns the address of a module that a program is started with (`node --import`) to be loaded from there. npm
 * is started with it too, by an older Node, which goes on without.
 */
export async function bundlePrograms(folder: string): Promise<string> {
  const addressOf = (path: string) => new URL(path, root).href
  const nameOf = (path: string) => basename(path, ".ts")
  await bundle({
    programs: Object.fromEntries(programs.map(path => [nameOf(path), path])),
    folder,
    apart,
    addressOf: path => JSON.stringify(addressOf(path)),
    chunks: "shared-[hash].js",
  })
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
