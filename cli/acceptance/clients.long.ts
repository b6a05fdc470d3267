// Stock MCP clients: the inspector, and the SDK of both revisions, over stdio and over HTTP; and a person who is asked.
import { execFile } from "node:child_process"
import { createRequire } from "node:module"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { newSandbox, type Sandbox } from "../../server/test/e2e/program.ts"
import { installPackages, nodeFirst } from "../../server/test/packages.ts"
import { type Cli, openCli, programFile } from "../test/program.ts"

let sandbox: Sandbox
let cli: Cli
let folder: string
let file: string
beforeAll(async () => {
  folder = await installPackages("cli/acceptance")
  file = await programFile()
  sandbox = await newSandbox({ LIMIT_CONSOLE: "0", LIMIT_MCP: "0" }, "migrated")
  await sandbox.start()
  cli = await openCli(sandbox)
})
afterAll(() => sandbox?.remove())

// biome-ignore lint/suspicious/noExplicitAny: packages that only this folder installs.
const load = async (name: string): Promise<any> =>
  await import(pathToFileURL(createRequire(join(folder, "x.js")).resolve(name)).href)
const program = () => ({
  command: process.execPath,
  args: [file, "mcp"],
  env: { PATH: process.env.PATH ?? "", HOME: sandbox.dir, ...cli.env },
})
const headers = () => ({ authorization: `Bearer ${cli.apiKey}` })
const clientInfo = { name: "test", version: "1" }

/** What every client has to find. */
// biome-ignore lint/suspicious/noExplicitAny: as above.
async function useTools(client: any): Promise<void> {
  const { tools } = await client.listTools()
  expect(tools.length).toBeGreaterThanOrEqual(9)
  const { content, structuredContent, isError } = await client.callTool({
    name: "list_events",
    arguments: { limit: 2 },
  })
  expect([isError ?? false, content[0].text]).toEqual([false, expect.stringMatching(/^\d+ of \d+\.$/)])
  expect(structuredContent).toMatchObject({ result: { data: expect.any(Array) }, untrusted: expect.any(Object) })
  await client.close()
}

describe("the SDK of version 1", () => {
  it("lists and calls over stdio", async () => {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js")
    const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js")
    const client = new Client(clientInfo)
    await client.connect(new StdioClientTransport(program()))
    await useTools(client)
  })

  it("lists and calls over HTTP", async () => {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js")
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js")
    const client = new Client(clientInfo)
    const requestInit = { headers: headers() }
    await client.connect(new StreamableHTTPClientTransport(new URL(`${sandbox.url}/mcp`), { requestInit }))
    await useTools(client)
  })
})

describe("the SDK of version 2", () => {
  it("lists and calls over stdio", async () => {
    const { Client } = await load("@modelcontextprotocol/client")
    const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio")
    const client = new Client(clientInfo)
    await client.connect(new StdioClientTransport(program()))
    await useTools(client)
  })

  it("lists and calls over HTTP", async () => {
    const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client")
    const client = new Client(clientInfo)
    const requestInit = { headers: headers() }
    await client.connect(new StreamableHTTPClientTransport(new URL(`${sandbox.url}/mcp`), { requestInit }))
    await useTools(client)
  })
})

it("the inspector lists and calls", async () => {
  const { bin } = createRequire(join(folder, "x.js"))("@modelcontextprotocol/inspector/package.json")
  const inspector = join(folder, "node_modules/@modelcontextprotocol/inspector", bin["mcp-inspector"])
  const { command, args, env } = program()
  // It hands nothing of its own environment to what it starts.
  const passed = Object.entries(cli.env).flatMap(([name, value]) => ["-e", `${name}=${value}`])
  const run = async (...more: string[]) => {
    const all = [inspector, "--cli", ...passed, command, ...args, ...more]
    const { stdout } = await promisify(execFile)(process.execPath, all, { env: { ...nodeFirst(), ...env } })
    return JSON.parse(stdout)
  }
  expect((await run("--method", "tools/list")).tools.length).toBeGreaterThanOrEqual(9)
  const called = await run("--method", "tools/call", "--tool-name", "docs_search", "--tool-arg", "words=webhook")
  expect(called.content[0].text).toMatch(/^Found [1-6] sections\.$/)
})
