/** `sluice init`: writes a working shop for a framework, from the examples in the documentation, with its settings. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { credentialOf } from "../profiles.ts"
import { starters } from "../starters.ts"

const PORT = 4300

/** How each framework's shop is installed and started. */
const programs: Record<string, { packages: Record<string, string>; start: string; build?: string }> = {
  express: { packages: { express: "^5.0.0" }, start: "node --env-file=.env shop.mjs" },
  fastify: { packages: { fastify: "^5.0.0" }, start: "node --env-file=.env shop.mjs" },
  hono: { packages: { hono: "^4.0.0", "@hono/node-server": "^2.0.0" }, start: "node --env-file=.env shop.mjs" },
  // Next reads .env by itself, so it needs no option for that.
  next: {
    packages: { next: "^16.0.0", react: "^19.0.0", "react-dom": "^19.0.0" },
    build: "next build",
    start: `next start --port ${PORT}`,
  },
}

/**
 * Writes the files into a folder that is new or empty. The key of the profile goes into `.env`, which only its owner
 * can read.
 */
export async function run({ args, options, out }: Input): Promise<void> {
  const [framework = "", folder = `sluice-${framework}`] = args
  const files = Object.hasOwn(starters, framework) ? starters[framework] : undefined
  if (!files)
    throw new Failure(
      `There is no example for ${framework}. Choose one of these: ${Object.keys(starters).join(", ")}.`,
      2,
    )
  const payTo = (options.payTo ?? "") as string
  if (payTo !== "" && !/^0x[0-9a-fA-F]{40}$/.test(payTo)) throw new Failure(`${payTo} is not an address.`, 2)
  if (namesIn(folder).length > 0) throw new Failure(`${folder} is not empty. Name a new folder.`)
  const { baseUrl, apiKey = "" } = credentialOf(options)
  const program = programs[framework]
  const written = {
    ...files,
    ...(program ? { "package.json": manifestOf(framework, program) } : { "requirements.txt": REQUIREMENTS }),
    ".env": environmentOf({ baseUrl, apiKey, payTo }),
    ".gitignore": ".env\nnode_modules/\n.next/\n__pycache__/\n",
  }
  for (const [name, text] of Object.entries(written)) {
    const file = join(folder, name)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text, { flag: "wx", mode: name === ".env" ? 0o600 : 0o644 })
  }
  const missing = [...(apiKey ? [] : ["SLUICE_API_KEY"]), "WEBHOOK_SECRET", ...(payTo ? [] : ["PAY_TO"])]
  const next = program
    ? ["npm install", ...(program.build ? ["npm run build"] : []), "npm start"]
    : ["pip install -r requirements.txt", "set -a && . ./.env && python shop.py"]
  if (out.isJson) return out.show({ folder, files: Object.keys(written), missing, next })
  out.show(
    [
      `Wrote ${Object.keys(written).length} files into ${folder}.`,
      `Set ${missing.join(" and ")} in ${join(folder, ".env")}: the file says where to find each value.`,
      `Then, in ${folder}: ${next.join(" && ")}`,
      `curl -X POST http://127.0.0.1:${PORT}/orders/1001 returns the page where the order is paid.`,
    ].join("\n"),
  )
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return []
    throw new Failure(`${folder} can't be read: ${(error as Error).message}`)
  }
}

const REQUIREMENTS = "sluice\nfastapi\nuvicorn\nhttpx\n"

function manifestOf(framework: string, { packages, start, build }: (typeof programs)[string]): string {
  const scripts = { ...(build ? { build } : {}), start }
  const dependencies = { "@sluice/sdk": "^0.1.0", ...packages }
  return `${JSON.stringify({ name: `sluice-${framework}`, private: true, type: "module", scripts, dependencies }, undefined, 2)}\n`
}

function environmentOf({ baseUrl, apiKey, payTo }: { baseUrl: string; apiKey: string; payTo: string }): string {
  return `# The service, and a key with the scope checkouts.
SLUICE_URL=${baseUrl}
SLUICE_API_KEY=${apiKey}
# The account's webhook secret: in the console under Settings; the sandbox prints it when it starts.
WEBHOOK_SECRET=
# Your own address, which receives payments from agents.
PAY_TO=${payTo}
PORT=${PORT}
`
}
