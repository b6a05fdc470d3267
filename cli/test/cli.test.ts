// The command line as a process, against a whole sandbox: what it prints, how it ends, and what happened at the service.
import { execFileSync } from "node:child_process"
import { chmodSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { newSandbox, root, type Sandbox, until } from "../../server/test/e2e/program.ts"
import { newVisitor, sendDeviceForm } from "../../server/test/sign-in.ts"
import { commandTable } from "../src/commands.ts"
import { operations } from "../src/operations.ts"
import { printable } from "../src/output.ts"
import { triggered, untriggered } from "../src/triggers.ts"
import { type Cli, openCli } from "./program.ts"

let sandbox: Sandbox
let cli: Cli
const url = () => sandbox.url
beforeAll(async () => {
  // More calls a minute than a key may make.
  sandbox = await newSandbox({ LIMIT_CHECKOUT: "0", LIMIT_CONSOLE: "0", LIMIT_MERCHANT: "0" }, "migrated")
  await sandbox.start()
  cli = await openCli(sandbox)
})
afterAll(() => sandbox?.remove())

const json: Cli["json"] = (...args) => cli.json(...args)
const run: Cli["run"] = (...args) => cli.run(...args)

const newCheckout = async (amount = "4"): Promise<string> => (await json("checkouts", "create", "--amount", amount)).id

// At once, as each waits for blocks.
describe.concurrent("paying in the sandbox", () => {
  it.each([
    [[], { status: "confirmed", exception: null, amountReceived: "4.00" }],
    [["--as-agent"], { status: "confirmed", amountReceived: "4.00" }],
    [["--over"], { status: "confirmed", amountReceived: "6.00" }],
    [["--twice"], { status: "confirmed", amountReceived: "8.00" }],
  ])("pay %j", async (manner, expected) => {
    const id = await newCheckout()
    await json("pay", id, ...manner)
    await until("all of it is there", async () => {
      const { status, amountReceived } = await json("checkouts", "get", id)
      return status === expected.status && amountReceived === expected.amountReceived
    })
  })

  it("pays a part, then the rest, and refuses to pay a third time", async () => {
    const id = await newCheckout("4.01")
    expect((await json("pay", id, "--partial")).txHashes).toHaveLength(1)
    await until("the part is counted", async () => (await json("checkouts", "get", id)).amountReceived === "2.005")
    expect(await json("pay", `${url()}/pay/${id}`)).toMatchObject({ status: "confirmed", amountReceived: "4.01" })
    const again = await run(["pay", id, "--json"])
    expect([again.code, again.out]).toEqual([1, ""])
  })

  it.each(["checkout.session.completed", "checkout.confirmed", "payment.exception", "settings.webhook_changed"])(
    "trigger %s makes the event happen, with ids that exist",
    async name => {
      const event = await json("trigger", name, "--metadata", "order=7")
      expect(event).toMatchObject({ event: name })
      expect(await json("events", "get", event.id)).toMatchObject({ id: event.id })
      if (name.startsWith("checkout."))
        expect(await json("checkouts", "get", event.data.id)).toMatchObject({ metadata: { order: "7" } })
    },
  )
})

it("triggers each event of the service, or says why it can't", async () => {
  const types: { type: string }[] = await json("events", "list-types")
  const all = types.map(({ type }) => type)
  expect([...triggered, ...Object.keys(untriggered)].sort()).toEqual(all.sort())
  for (const [name, reason] of Object.entries(untriggered)) {
    const { code, out, errors } = await run(["trigger", name])
    expect([code, out, errors]).toEqual([2, "", expect.stringContaining(reason)])
  }
})

describe("reading", () => {
  it("prints a page of a list, and with --all a line for each row", async () => {
    await newCheckout()
    await newCheckout()
    const page = await json("checkouts", "list", "--limit", "1")
    expect([page.data.length, page.total > 1]).toEqual([1, true])
    const all = await run(["checkouts", "list", "--all"])
    const rows = all.out
      .trimEnd()
      .split("\n")
      .map(line => JSON.parse(line))
    expect(rows).toHaveLength(page.total)
    expect(rows[0].id).toBe(page.data[0].id)
  })

  it("tails events from a time on", async () => {
    const event = await json("trigger", "settings.webhook_changed")
    const since = new Date(Date.parse(event.createdAt) - 1).toISOString()
    expect(await json("events", "tail", "--since", since, "--count", "1")).toMatchObject({ event: event.event })
  })

  it("tails what happens from now on, each event once, though it reads some seconds again", async () => {
    const ofType = ["--type", "settings.webhook_changed"]
    const before = await json("trigger", "settings.webhook_changed")
    const { child, seen } = cli.start(["events", "tail", ...ofType, "--json"])
    const ids = () =>
      seen.out
        .trim()
        .split("\n")
        .flatMap(line => (line === "" ? [] : [JSON.parse(line).id]))
    try {
      // Whatever was made before its first look counts as printed.
      await until("it prints", async () => {
        await json("trigger", "settings.webhook_changed")
        return ids().length > 0
      })
      const printed = ids().length
      await json("trigger", "settings.webhook_changed")
      await until("it prints more", () => ids().length > printed)
      expect(new Set(ids()).size).toBe(ids().length)
      expect(ids()).not.toContain(before.id)
    } finally {
      child.kill("SIGTERM")
    }
  })

  it("tails the log of requests, with why one was refused", async () => {
    const { accessToken } = sandbox.file().merchants[0]
    const authorization = `Bearer ${accessToken}`
    const scopes = ["checkouts", "console"]
    const { body } = await sandbox.call("/api/console/api-keys", { name: "logs", scopes }, { authorization })
    const env = { SLUICE_API_KEY: body.key, SLUICE_URL: url() }
    const refused = await run(["api", "POST", "/api/checkouts", "--data", '{"amount":"-1"}'], env)
    expect(refused.code).not.toBe(0)
    const { code, out, errors } = await run(
      ["logs", "tail", "--key", body.id, "--since", "2026-01-01", "--count", "1"],
      env,
    )
    expect([code, errors]).toEqual([0, ""])
    expect(out).toMatch(/ {2}400 {2}POST \/api\/checkouts {2}\d+ ms {2}\S+ {2}VALIDATION_ERROR: \S/)
  })

  it("prints what other commands find as JSON", async () => {
    expect(await json("api", "GET", "/healthz")).toMatchObject({ status: "ok" })
    expect(await json("open")).toEqual({ url: `${url()}/console` })
    const id = await newCheckout()
    expect(await json("open", id)).toEqual({ url: `${url()}/console/payments/${id}` })
    expect((await run(["open", "cs_aaaaaaaaaaaaaaaaaaaaaaaa"])).code).toBe(1)
    expect((await json("doctor")).findings).toHaveLength(4)
    expect((await json("export", "books", "--from", "2026-01-01", "--to", "2026-01-02")).csv).toContain(",")
    expect((await json("completion", "zsh")).script).toContain("checkouts list")
  })

  it("prints one line of JSON for each kind of thing", async () => {
    const all = await openCli(sandbox, ["console", "settings:read", "checkouts"])
    const reads = Object.keys(operations).flatMap(name =>
      ["list", "get", "find"].flatMap(method => {
        const operation = operations[name]?.[method]
        return operation?.ids.length === 0 ? [[name, method, ...(method === "find" ? ["--q", "a"] : [])]] : []
      }),
    )
    expect(reads.length).toBeGreaterThan(20)
    // Some together: each is a process that waits for an answer.
    for (let i = 0; i < reads.length; i += 4)
      await Promise.all(
        reads.slice(i, i + 4).map(async args => {
          expect([args, typeof (await all.json(...args))]).toEqual([args, "object"])
        }),
      )
  })

  it("writes a report to a new file, and to no other", async () => {
    const file = join(sandbox.dir, "books.csv")
    const args = ["export", "books", "--from", "2026-01-01", "--to", "2026-01-02", "--out", file]
    const { bytes } = await json(...args)
    const written = readFileSync(file)
    expect([written.length, written.length > 0]).toEqual([bytes, true])
    expect((await run(args)).code).toBe(1)
    expect(readFileSync(file)).toEqual(written)
  })

  it("completes in bash", async () => {
    const { script } = await json("completion", "bash")
    const complete = (...words: string[]) =>
      execFileSync("bash", [
        "-c",
        `${script}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice; printf '%s\n' "\${COMPREPLY[@]}"`,
        "bash",
        ...words,
      ])
        .toString()
        .trim()
        .split("\n")
    expect(complete("sluice", "checkouts", "l")).toEqual(["list"])
    expect(complete("sluice", "trigger", "checkout.")).toEqual(triggered.filter(name => name.startsWith("checkout.")))
  })

  it("resends an event to the endpoint that was to get it", async () => {
    const made = await json(
      "webhooks",
      "create",
      "--url-value",
      `${url()}/sandbox/inbox/cli`,
      "--events",
      '["checkout.confirmed"]',
    )
    const event = await json("trigger", "checkout.confirmed")
    expect(await json("events", "resend", event.id)).toMatchObject([{ eventId: event.id, webhookId: made.id }])
    await json("webhooks", "delete", made.id)
  })
})

describe("progress", () => {
  const inTerminal = async (args: string[], env: object = {}) =>
    await cli.start(args, { ...cli.env, ...env } as Record<string, string>, true).ended
  const report = ["export", "books", "--from", "2026-01-01", "--to", "2026-01-02"]

  it("is a line of a terminal, which is gone when the work is done", async () => {
    const { out } = await inTerminal(["trigger", "settings.webhook_changed"])
    expect(out).toContain("\r\u001b[KTriggering settings.webhook_changed ...  ")
    expect(out.endsWith("\r\u001b[K")).toBe(true)
    expect((await inTerminal(report)).out).toMatch(/Reading the report books \.\.\. {2}\d+ KiB {2}\d+ s/)
  })

  it("is nothing where that is no terminal, or the output is for programs", async () => {
    expect(await run(["trigger", "settings.webhook_changed"])).toMatchObject({ code: 0, errors: "" })
    expect(await run(report)).toMatchObject({ code: 0, errors: "" })
    for (const [args, env] of [
      [[...report, "--json"], {}],
      [report, { TERM: "dumb" }],
    ] as const)
      expect((await inTerminal([...args], env)).out).not.toContain("Reading")
  })
})

describe("failures", () => {
  const own = () => cli.env
  it.each([
    ["an unknown command", ["bogus"], own, 2, "USAGE"],
    ["an unknown option", ["checkouts", "list", "--bogus"], own, 2, "USAGE"],
    ["a missing argument", ["pay"], own, 2, "USAGE"],
    ["a value of the wrong type", ["checkouts", "list", "--limit", "many"], own, 2, "FAILED"],
    ["a path that leaves the service", ["api", "GET", "@evil.example/"], own, 2, "FAILED"],
    ["a thing that does not exist", ["checkouts", "get", "cs_aaaaaaaaaaaaaaaaaaaaaaaa"], own, 1, "SESSION_NOT_FOUND"],
    ["a wrong field", ["checkouts", "create", "--amount", "x"], own, 1, "VALIDATION_ERROR"],
    ["no key", ["checkouts", "list"], () => ({ SLUICE_URL: url() }), 3, "FAILED"],
    ["a wrong key", ["checkouts", "list"], () => ({ SLUICE_API_KEY: "sk_x", SLUICE_URL: url() }), 3, "UNAUTHORIZED"],
    ["no service", ["api", "GET", "/"], () => ({ SLUICE_URL: "http://127.0.0.1:9" }), 4, "CONNECTION_FAILED"],
  ])("%s", async (_, args, env, code, error) => {
    const ended = await run([...args, "--json"], env())
    expect([ended.code, ended.out]).toEqual([code, ""])
    const facts = JSON.parse(ended.errors)
    expect(facts).toMatchObject({ error, exitCode: code })
    expect("requestId" in facts).toBe(error !== "USAGE" && error !== "FAILED" && error !== "CONNECTION_FAILED")
    const plain = await run(args, env())
    expect([plain.code, plain.out]).toEqual([code, ""])
    expect(plain.errors.trim()).not.toMatch(/^\{|^Usage:/)
    if (facts.requestId) expect(plain.errors).toMatch(/ {2}request [0-9a-f-]{36}/)
  })
})

describe("a profile", () => {
  it("is made by login, used, kept from others, and removed by logout", async () => {
    const file = join(sandbox.dir, "profiles.json")
    const env = { SLUICE_CONFIG: file }
    const { ended, seen } = cli.start(["login", "--url", url(), "--json"], env)
    await until("it shows the code", () => seen.out.includes("\n"))
    const { userCode, verificationUri } = JSON.parse(seen.out.split("\n")[0] ?? "")
    expect(verificationUri).toBe(`${url()}/console/device`)
    const visitor = newVisitor(url())
    const body = JSON.stringify({ merchantId: sandbox.file().merchants[0].id })
    const headers = { "content-type": "application/json", origin: url() }
    const signedIn = await visitor.fetch("/api/console/session", { method: "POST", headers, body })
    expect(signedIn.status, await signedIn.text()).toBeLessThan(300)
    expect((await sendDeviceForm(visitor, { code: userCode, does: "approve" }, { origin: url() })).text).toContain(
      "approved",
    )
    expect((await ended).code).toBe(0)
    expect(JSON.parse(seen.out.split("\n")[1] ?? "")).toMatchObject({ url: url(), savedIn: file })
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(seen.out).not.toContain(JSON.parse(readFileSync(file, "utf8")).default.apiKey)

    expect((await run(["checkouts", "list", "--json"], env)).code).toBe(0)
    // The key goes to its own service alone.
    expect(await run(["checkouts", "list"], { ...env, SLUICE_URL: "http://127.0.0.1:9" })).toMatchObject({
      code: 3,
      out: "",
    })
    chmodSync(file, 0o644)
    expect(await run(["checkouts", "list"], env)).toMatchObject({ code: 3, out: "" })
    // A key of the environment is used without a look at the file.
    expect((await run(["checkouts", "list"], { ...env, ...cli.env })).code).toBe(0)
    chmodSync(file, 0o600)
    expect((await run(["logout"], env)).code).toBe(0)
    expect(readFileSync(file, "utf8")).toBe("{}\n")
  })
})

describe("the table of commands", () => {
  it("has no option twice, as the second would hide the first", () => {
    const check = (name: string, { options = [], commands = {} }: ReturnType<typeof commandTable>[string]) => {
      const flags = [...options.map(([flags]) => flags.split(" ")[0]), "--json", "--profile", "--url"]
      expect(
        flags.filter((flag, i) => flags.indexOf(flag) !== i),
        name,
      ).toEqual([])
      for (const [child, each] of Object.entries(commands)) check(`${name} ${child}`, each)
    }
    for (const [name, command] of Object.entries(commandTable())) check(name, command)
  })
})

it.each(["skills/sluice/SKILL.md", "docs/developers/mcp.md", "cli/README.md"])("has each command of %s", path => {
  const text = readFileSync(join(root, path), "utf8")
  const named = [...text.matchAll(/(?:`|^)\s*sluice ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?/gm)]
  expect(named.length).toBeGreaterThan(1)
  for (const [line, name = "", second = ""] of named) {
    const command = commandTable()[name]
    expect(command, line).toBeDefined()
    if (command?.commands) expect(Object.keys(command.commands), line).toContain(second)
  }
})

it("keeps what controls a terminal out of it", () => {
  expect(printable("a\u001b[2Jb\u009bc\u202ed\ne")).toBe("a\ufffd[2Jb\ufffdc\ufffdd\ne")
})
