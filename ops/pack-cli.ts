/** Bundles the command line for merchants, with all that it uses, into `cli/dist`. npm runs it before it packs `@sluice/cli`. */
import { rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { rolldown } from "rolldown"
import { packagesOf, termsOf } from "./pack.ts"

const root = join(import.meta.dirname, "..")
const dist = join(root, "cli/dist")

await rm(dist, { recursive: true, force: true })
const bundle = await rolldown({
  input: { sluice: join(root, "cli/src/bin.ts") },
  platform: "node",
  transform: { target: "node22" },
})
const { output } = await bundle.write({
  dir: dist,
  format: "esm",
  entryFileNames: "[name].js",
  chunkFileNames: "[name]-[hash].js",
  // Names stay, for stacks.
  minify: { compress: true, mangle: false },
})
await bundle.close()
const modules = output.flatMap(file => (file.type === "chunk" ? file.moduleIds : []))
await writeFile(join(dist, "THIRD_PARTY_LICENSES.txt"), termsOf(await packagesOf(modules)))
