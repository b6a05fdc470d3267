// A dump that was made under load is restored long after, as docs/operations.md says: the wallet halts, `adopt --all` takes in
// what was sent since, and everyone is paid once.
import { execFile } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import pg from "pg"
import { createPublicClient, createTestClient, erc20Abi, type Hex, http } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { askAdmin } from "./admin.ts"
import { newSandbox, plainEnv, root, type Sandbox, until } from "./program.ts"

const A = `0x${"a1".repeat(20)}` as Hex
const B = `0x${"b2".repeat(20)}` as Hex
/** Sold before the dump, while it is made, and after it; each is two payouts. */
const [BEFORE, MEANWHILE, AFTER] = [6, 6, 12]

const run = promisify(execFile)
const dir = mkdtempSync(join(tmpdir(), "sluice-restore-"))
const commands = [
  ...readFileSync(join(root, "docs/operations.md"), "utf8").matchAll(/^ *```sh postgres\n([\s\S]*?)^ *```$/gm),
]
const commandOf = (program: string): string => commands.find(([, text]) => text?.trim().startsWith(program))?.[1] ?? ""

let postgres: TestPostgres
let sandbox: Sandbox
const settings: Record<string, string> = Object.fromEntries(
  ["CONSOLE", "PUBLIC", "PAYWALL_PAY"].map(bucket => [`LIMIT_${bucket}`, "0"]),
)

describe.runIf(postgresBinaries())("a restored dump", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
    for (const name of ["first", "second"]) await query(postgres.url, `create database ${name}`)
    settings.DATABASE_URL = database("first")
    sandbox = await newSandbox(settings)
  })
  afterAll(async () => {
    await sandbox?.remove()
    await postgres?.stop()
    rmSync(dir, { recursive: true, force: true })
  })

  const database = (name: string) => Object.assign(new URL(postgres.url), { pathname: `/${name}` }).href

  async function query(url: string, text: string) {
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    return (await client.query(text).finally(() => client.end())).rows
  }

  const shell = (text: string) => {
    const PATH = `${postgresBinaries()}:${root}script:${process.env.PATH}`
    const env = { ...plainEnv(), PATH, DATABASE_URL: database("first"), RESTORED_URL: database("second") }
    return run("bash", ["-euo", "pipefail", "-c", text], { cwd: dir, env })
  }
  const wallet = async (...args: string[]): Promise<string> => {
    return (await run(join(root, "script/wallet"), args, { env: { ...plainEnv(), DATA_DIR: sandbox.dir } })).stdout
  }
  const shown = async () => (await askAdmin(sandbox.dir, "/wallets"))[0]
  const chain = () => createTestClient({ mode: "anvil", transport: http(sandbox.file().rpcUrl, { timeout: 120_000 }) })
  const held = (address: Hex) =>
    createPublicClient({ transport: http(sandbox.file().rpcUrl, { timeout: 120_000 }) }).readContract({
      address: sandbox.file().token.address,
      abi: erc20Abi,
      functionName: "balanceOf",
      args: [address],
    })
  async function post(path: string, body: object) {
    const headers = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
    const answer = await sandbox.call(path, body, headers)
    // For a transaction that the dump already has, the answer says so.
    if (answer.body.error !== "ALREADY_VERIFIED") expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
    return answer.body
  }

  const hashes: string[] = []
  const submit = (id: string, txHash: string) =>
    post(`/api/paywalls/${id}/pay`, { txHash, address: sandbox.file().buyers[0].address })

  /** Pays to one address so often, one after the other. */
  async function pay(id: string, payTo: Hex, times: number): Promise<void> {
    for (let i = 0; i < times; i++) {
      const { txHash } = await post("/sandbox/pay", { to: payTo, amount: "1" })
      hashes.push(txHash)
      await submit(id, txHash)
    }
  }

  it("halts the wallet; after `adopt --all` and `resume` everyone is paid once, and the books are the chain's", async () => {
    let service = await sandbox.start()
    const recipients = [A, B].map(address => ({ address, percent: 50 }))
    const { id: splitId } = await post("/api/console/splits", { name: "Two", recipients })
    const { id } = await post("/api/console/paywalls", { name: "Divided", price: "1", splitId })
    const { payTo } = (await sandbox.call(`/api/paywalls/${id}`)).body
    const due = BigInt(BEFORE + MEANWHILE + AFTER) * 500_000n
    const paid = async () => [await held(A), await held(B)]

    await pay(id, payTo, BEFORE)
    await until("payouts are sent", async () => (await held(A)) > 0n)
    await Promise.all([pay(id, payTo, MEANWHILE), shell(commandOf("sluice backup"))])
    await pay(id, payTo, AFTER)
    await until("all are paid", async () => (await paid()).every(amount => amount === due))
    // Half an hour of blocks: what was sent meanwhile is long final, and far from the head.
    await chain().mine({ blocks: 900 })
    await service.kill("SIGKILL")
    await query(postgres.url, "drop database first with (force)")

    await shell(commandOf("pg_restore"))
    settings.DATABASE_URL = database("second")
    service = await sandbox.start()
    await until("the wallet is halted", async () => (await shown()).status === "halted")
    expect((await shown()).haltedReason ?? (await wallet("show"))).toContain("transactions of the wallet")
    // What buyers submitted since the dump is gone with it; they ask again.
    for (const txHash of hashes) await submit(id, txHash)
    await until("all is adopted", async () => {
      const said = await wallet("adopt", "--all", "payout", "--reason", "restored")
      return said.includes("Every final transaction of the wallet is known")
    })
    await wallet("resume", "payout", "--reason", "restored")
    await until("all is final", async () => {
      await chain().mine({ blocks: 10 })
      const open = await query(database("second"), "select id from payouts where state <> 'final'")
      const made = await query(database("second"), "select coalesce(sum(amount), 0) as sum from payouts")
      return open.length === 0 && BigInt(made[0].sum) === 2n * due
    })
    expect(await paid()).toEqual([due, due])
    expect(await shown()).toMatchObject({ status: "active" })
    const [books] = await query(
      database("second"),
      "select sum(inflow) as inflow, sum(committed) as committed from deposit_books",
    )
    expect([BigInt(books.inflow), BigInt(books.committed), await held(payTo)]).toEqual([2n * due, 2n * due, 0n])
    // And it goes on paying.
    await pay(id, payTo, 1)
    await until("the next is paid", async () => (await held(A)) === due + 500_000n)
  })
})
