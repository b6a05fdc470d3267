/** Builds the command line as one file, and the page as one HTML file that also works from a disk. */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { rolldown } from "rolldown"

const here = import.meta.dirname

async function bundle(input: string, platform: "node" | "browser"): Promise<string> {
  const build = await rolldown({ input: join(here, "src", input), platform, logLevel: "warn" })
  const { output } = await build.generate({ format: "esm", minify: true })
  await build.close()
  return output[0].code
}

/** The page `/verify` with its script and style inside. */
export async function buildPage(): Promise<string> {
  const script = (await bundle("page.ts", "browser")).trim().replaceAll("</script", "<\\/script")
  const page = readFileSync(join(here, "src", "page.html"), "utf8")
  return page.replace("<script></script>", () => `<script type="module">${script}</script>`)
}

if (import.meta.main) {
  const dist = join(here, "dist")
  mkdirSync(dist, { recursive: true })
  writeFileSync(join(dist, "cli.js"), `#!/usr/bin/env node\n${await bundle("cli.ts", "node")}`)
  chmodSync(join(dist, "cli.js"), 0o755)
  writeFileSync(join(dist, "verify.html"), await buildPage())
}
