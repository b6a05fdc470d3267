/**
 * Makes api.d.ts, the types of docs/openapi.json, the SDK's resources and the command line's operations. The first line of the types has a hash of all
 * that they were made from and of themselves. `--check` compares that hash alone, so it needs neither the generator nor a
 * registry.
 */
import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { cliOperationsOf } from "./cli-operations.ts"
import { resourcesOf } from "./sdk-resources.ts"

const folder = fileURLToPath(new URL(".", import.meta.url))
const document = `${folder}../../docs/openapi.json`
const target = `${folder}api.d.ts`
const resources = `${folder}../../sdk/src/resources.ts`
const operations = `${folder}../../cli/src/operations.ts`
const run = (command: string, args: string[]) =>
  execFileSync(command, args, { cwd: folder, stdio: ["ignore", "pipe", "inherit"], maxBuffer: 1 << 26 }).toString()

/** The first line for types that were made of the present document by the present generator. */
function headerOf(types: string): string {
  const hash = createHash("sha256")
  for (const part of [readFileSync(document), readFileSync(`${folder}package-lock.json`), types]) hash.update(part)
  return `// Made from docs/openapi.json by \`npm run types\`; do not edit. ${hash.digest("hex")}\n`
}

const parsed = JSON.parse(readFileSync(document, "utf8"))
const made = { [resources]: resourcesOf(parsed), [operations]: cliOperationsOf(parsed) }

if (process.argv.includes("--check")) {
  for (const [file, text] of Object.entries(made))
    if (readFileSync(file, "utf8") !== text) {
      process.stderr.write(
        `${file.split("../../").at(-1)} is not of the present docs/openapi.json: run \`npm run types\` and commit it\n`,
      )
      process.exitCode = 1
    }
  const [header = "", ...lines] = readFileSync(target, "utf8").split(/^/m)
  if (header !== headerOf(lines.join(""))) {
    process.stderr.write(
      "tools/openapi/api.d.ts is not of the present docs/openapi.json: run `npm run types` and commit it\n",
    )
    process.exitCode = 1
  }
} else {
  for (const [file, text] of Object.entries(made)) writeFileSync(file, text)
  run("npm", ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"])
  const bin = `${folder}node_modules/openapi-typescript/bin/cli.js`
  const types = run(process.execPath, [bin, document, "--root-types", "--root-types-no-schema-prefix"])
  writeFileSync(target, headerOf(types) + types)
}
