// What a process loads at its start: each module is memory for as long as it runs, and time of its start. `script/bench start`
// measures both.
import { readFileSync } from "node:fs"
import { describe, expect, it } from "vitest"

const source = (path: string) => new URL(`../src/${path}`, import.meta.url)

/** What a file imports when it is loaded, without types and without what it imports later. */
function importsOf(file: URL): string[] {
  const statements = readFileSync(file, "utf8").matchAll(
    /^(?:import|export)\s+(?:(type\s)?([^"';]*?)from\s+)?"([^"]+)"/gms,
  )
  return [...statements].flatMap(([, type, names = "", target = ""]) => {
    const listed = /^\s*\{([^}]*)\}\s*$/
      .exec(names)?.[1]
      ?.split(",")
      .filter(name => name.trim() !== "")
    return type || listed?.every(name => /^\s*type\s/.test(name)) ? [] : [target]
  })
}

/** The files that are loaded with these, and the packages that they import. */
function loadedWith(paths: readonly string[]): { files: Set<string>; packages: Set<string> } {
  const files = new Set<string>()
  const packages = new Set<string>()
  const load = (file: URL): void => {
    if (files.has(file.href)) return
    files.add(file.href)
    for (const target of importsOf(file))
      if (target.startsWith(".")) load(new URL(target, file))
      else if (!target.startsWith("node:")) packages.add(target)
  }
  for (const path of paths) load(source(path))
  return { files, packages }
}

const isIn = (files: ReadonlySet<string>, path: string) => files.has(source(path).href)

describe("a process loads at its start what its role needs", () => {
  const program = loadedWith(["main.ts"])
  const api = loadedWith(["main.ts", "app.ts"])
  const worker = loadedWith(["main.ts", "worker.ts", "lanes.ts", "operations/operator/open-admin.ts"])

  it("the command alone, nothing of the service", () => {
    expect(loadedWith(["operations/cli/sluice.ts"]).files.size).toBe(1)
  })

  it("every process, neither the routes nor the jobs", () => {
    for (const path of ["app.ts", "worker.ts", "lanes.ts", "operations/sandbox/start.ts"])
      expect([path, isIn(program.files, path)]).toEqual([path, false])
    expect(program.files.size).toBeGreaterThan(200)
  })

  it("an API process, no job", () => {
    for (const path of [
      "worker.ts",
      "ledger/reconciliation/check-books.ts",
      "ledger/txmanager/run-round.ts",
      "operations/operator/open-admin.ts",
    ]) {
      expect([path, isIn(worker.files, path)]).toEqual([path, true])
      expect([path, isIn(api.files, path)]).toEqual([path, false])
    }
  })

  it("a worker, no route of the API", () => {
    for (const path of [
      "app.ts",
      "platform/http/openapi.ts",
      "products/pages/routes.ts",
      "products/checkouts/routes.ts",
    ]) {
      expect([path, isIn(api.files, path)]).toEqual([path, true])
      expect([path, isIn(worker.files, path)]).toEqual([path, false])
    }
  })

  it("no process on Postgres, what few need: the embedded database, the pages of the API's document, spans, Redis", () => {
    const rare = [
      "@electric-sql/pglite",
      "@fastify/swagger-ui",
      "ioredis",
      "@aws-sdk/client-kms",
      "google-auth-library",
    ]
    for (const { packages } of [program, api, worker])
      expect([...packages].filter(name => rare.includes(name) || name.startsWith("@opentelemetry/"))).toEqual([])
  })
})
