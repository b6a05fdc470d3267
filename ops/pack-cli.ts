/** Bundles the command line for merchants, with all that it uses, into `cli/dist`. npm runs it before it packs `@sluice/cli`. */
import { rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { rolldown } from "rolldown"
import { packagesOf, termsOf } from "./pack.ts"

const root = join(import.meta.dirname, "..")

/** Writes the bundle into a folder, where `sluice.js` is the program; returns the paths of all modules in it. */
export async function bundleCli(folder: string): Promise<string[]> {
  const bundle = await rolldown({
    input: { sluice: join(root, "cli/src/bin.ts") },
    platform: "node",
    transform: { target: "node22" },
    logLevel: "silent",
  })
  const { output } = await bundle.write({
    dir: folder,
    format: "esm",
    entryFileNames: "[name].js",
    banner: ({ isEntry }) => (isEntry ? "#!/usr/bin/env node" : ""),
    chunkFileNames: "[name]-[hash].js",
    // Names stay, for stacks.
    minify: { compress: true, mangle: false },
  })
  await bundle.close()
  return output.flatMap(file => (file.type === "chunk" ? file.moduleIds : []))
}

if (import.meta.main) {
  const dist = join(root, "cli/dist")
  await rm(dist, { recursive: true, force: true })
  await writeFile(join(dist, "THIRD_PARTY_LICENSES.txt"), termsOf(await packagesOf(await bundleCli(dist))))
}
