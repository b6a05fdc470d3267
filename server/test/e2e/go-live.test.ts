// docs/operators/go-live.md: every command of it, on a chain, a Postgres and ports of the test's own.
import { type ChildProcess, execFile, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { type Hex, parseEther } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { testUsdcAbi } from "../../src/platform/chain/abi.ts"
import { type Anvil, deployTestUsdc, placeSharedContracts, startAnvil } from "../anvil.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { freePort, plainEnv, root, until } from "./program.ts"

const guide = readFileSync(join(root, "docs/operators/go-live.md"), "utf8")
const blocks = [...guide.matchAll(/^```sh golive(.*)\n([\s\S]*?)^```$/gm)].map(match => ({
  kind: match[1]?.trim() ?? "",
  text: match[2] ?? "",
}))
const PUBLIC_ENDPOINTS = "https://sepolia.base.org,https://base-sepolia-rpc.publicnode.com"

let anvil: Anvil
let postgres: TestPostgres
let home: string
let port: number
let usdc: Hex
let server: ChildProcess | undefined
let log = ""

/** A block with this test's addresses in the place of the public ones. */
const here = (text: string): string =>
  text
    // One chain by two names: the doctor asks for endpoints of two hosts.
    .replaceAll(PUBLIC_ENDPOINTS, `${anvil.rpcUrl},${anvil.rpcUrl.replace("127.0.0.1", "localhost")}`)
    .replaceAll("https://pay.example.com", `http://127.0.0.1:${port}`)
    .replaceAll("@127.0.0.1/sluice", `@127.0.0.1:${new URL(postgres.url).port}/sluice`)

const environment = () => ({
  ...plainEnv(),
  PATH: `${process.env.PATH}:${postgresBinaries()}`,
  HOME: home,
  PORT: `${port}`,
  PGPORT: new URL(postgres.url).port,
  // The chain is the test's own, and so is its token.
  TOKEN_BASE_SEPOLIA: usdc,
  // The public escrow is not on it.
  ESCROW_BASE_SEPOLIA: "off",
})

async function shell(text: string): Promise<{ code: number; out: string; errors: string }> {
  const run = promisify(execFile)("bash", ["-euo", "pipefail", "-c", here(text)], { cwd: root, env: environment() })
  return await run.then(
    ({ stdout, stderr }) => ({ code: 0, out: stdout, errors: stderr }),
    ({ code, stdout, stderr }) => ({ code, out: stdout, errors: stderr }),
  )
}

/** What a block of commands answers, where each answers JSON. */
const answers = (out: string) => out.split(/(?<=\})\s*(?=\{)/).map(text => JSON.parse(text))

describe.runIf(postgresBinaries())("the way from nothing to a test network", () => {
  beforeAll(async () => {
    home = mkdtempSync(join(tmpdir(), "sluice-home-"))
    ;[anvil, postgres, port] = await Promise.all([
      startAnvil({ blockTime: 1 }),
      startPostgres({ fsync: true }),
      freePort(),
    ])
    usdc = await deployTestUsdc(anvil.client)
    await placeSharedContracts(anvil.client)
  })
  afterAll(async () => {
    if (server?.exitCode === null) {
      server.kill("SIGTERM")
      await once(server, "exit")
    }
    await Promise.all([anvil?.stop(), postgres?.stop()])
    rmSync(home, { recursive: true, force: true })
  })

  it("leads from nothing to a payment and its sweep", async () => {
    expect(blocks.map(({ kind }) => kind)).toEqual(["", "exits-1", "", "serves", "", "", ""])
    const [settings, before, factory, serves, after, merchant, paid] = blocks.map(({ text }) => text) as [
      ...[string, string, string, string, string, string, string],
    ]
    expect(await shell(settings)).toMatchObject({ code: 0 })
    expect(statSync(join(home, "sluice/env")).mode & 0o777).toBe(0o600)

    const first = await shell(before)
    expect(first.code).toBe(1)
    expect(first.out).toContain("DEPOSIT_FACTORY_BASE_SEPOLIA must be set")
    const wallets = [...first.out.replace(/\s+/g, " ").matchAll(/Send ether to (0x[0-9a-fA-F]{40})/g)].map(
      each => each[1],
    )
    expect(wallets.length).toBe(2)
    for (const address of wallets) await anvil.client.setBalance({ address: address as Hex, value: parseEther("1") })

    const deployed = await shell(factory)
    expect(deployed).toMatchObject({ code: 0, out: "" })
    expect(deployed.errors).toContain("The contract is final, and its code is this version's.")
    expect(readFileSync(join(home, "sluice/env"), "utf8")).toMatch(/^DEPOSIT_FACTORY_BASE_SEPOLIA=0x[0-9a-fA-F]{40}$/m)

    server = spawn("bash", ["-euc", `${here(serves).replace("script/server", "exec script/server")}`], {
      cwd: root,
      env: environment(),
      stdio: ["ignore", "pipe", "pipe"],
    })
    for (const stream of [server.stdout, server.stderr]) stream?.on("data", chunk => (log += chunk))
    await until("the service has started", () => /"started"|can't run/.test(log) || server?.exitCode !== null)
    expect(log).toContain('"started"')
    const ready = async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/readyz`)
      return answer.ok ? ((await answer.json()) as { alarms: string[] }).alarms : undefined
    }
    await until("it is ready, and needs nobody", async () => (await ready())?.length === 0)
    const second = await shell(after)
    expect(second.out).toContain("All checks passed.")
    expect(second.out).toContain('{"status":"ready","alarms":[]}')
    expect(second.code).toBe(0)

    const asked = await shell(merchant)
    expect(asked.code).toBe(0)
    const [body, payTo] = asked.out.trim().split("\n")
    const { payoutAddress } = JSON.parse(body ?? "") as { payoutAddress: Hex }
    const buyer = anvil.accounts[3].address
    const amount = 12_000_000n
    const token = { address: usdc, abi: testUsdcAbi } as const
    await anvil.client.writeContract({ ...token, functionName: "mint", args: [buyer, amount] })
    const transfer = { ...token, functionName: "transfer", args: [payTo as Hex, amount] } as const
    const hash = await anvil.client.writeContract({ ...transfer, account: anvil.accounts[3] })
    await anvil.client.waitForTransactionReceipt({ hash })

    const balance = () => anvil.client.readContract({ ...token, functionName: "balanceOf", args: [payoutAddress] })
    await until("the merchant's wallet has it", async () => (await balance()) === amount)
    await until("the commands say so", async () => {
      const [status, sweeps] = answers((await shell(paid)).out)
      expect(status).toMatchObject({ status: "confirmed", amount: "12.00", txHash: hash })
      return sweeps.total === 1 && sweeps.data[0].txHash !== null
    })
    for (const name of ["PAYOUT_PRIVATE_KEY", "RELAY_PRIVATE_KEY", "SECRET_KEY"]) {
      const secret = new RegExp(`^${name}=(?:0x)?(.*)$`, "m").exec(readFileSync(join(home, "sluice/env"), "utf8"))?.[1]
      expect(secret).toMatch(/^[0-9a-f]{64}$/)
      expect(log + first.out + second.out + deployed.errors).not.toContain(secret)
    }
  })
})
