/**
 * The restore of a lost database, as docs/operators/operations.md says: a backup that was made under load is restored long after, while buyers go
 * on paying; the wallet halts, `adopt --all` takes in what was sent since, and everyone is paid once. A test runs it small, and
 * `script/bench restore` at full size, with the time of each step.
 */
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { promisify } from "node:util"
import pg from "pg"
import { createTestClient, encodeFunctionData, erc20Abi, type Hex, http, publicActions } from "viem"
import { postgresBinaries, startPostgres } from "../postgres.ts"
import { askAdmin } from "./admin.ts"
import { newSandbox, plainEnv, root, until } from "./program.ts"

/** How many payments before the backup, while it is made, and after it; each is two payouts. And how many blocks pass. */
export interface Size {
  before: number
  meanwhile: number
  after: number
  blocks: number
  /** Milliseconds between two payments that come in while the wallet is halted. */
  pauseMs: number
}

/** Seconds of each step of the operator, from the moment that the database is gone. */
export type Times = Record<"restored" | "halted" | "adopted" | "resumed" | "paid", number>

const [A, B] = ["a1", "b2"].map(byte => `0x${byte.repeat(20)}`) as [Hex, Hex]
const HALF = 500_000n

const run = promisify(execFile)
const blocks = [
  ...readFileSync(join(root, "docs/operators/operations.md"), "utf8").matchAll(
    /^ *```sh postgres\n([\s\S]*?)^ *```$/gm,
  ),
]
const commandOf = (program: string): string => blocks.find(([, text]) => text?.trim().startsWith(program))?.[1] ?? ""

/** An installation on a Postgres of its own, and what the drill does to it. */
async function openStage() {
  const dir = mkdtempSync(join(tmpdir(), "sluice-restore-"))
  const postgres = await startPostgres()
  const database = (name: string) => Object.assign(new URL(postgres.url), { pathname: `/${name}` }).href
  const query = async (url: string, text: string) => {
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    return (await client.query(text).finally(() => client.end())).rows
  }
  for (const name of ["first", "second"]) await query(postgres.url, `create database ${name}`)
  const limits = ["CONSOLE", "PUBLIC", "PAYWALL_PAY"].map(bucket => [`LIMIT_${bucket}`, "0"])
  const settings: Record<string, string> = { ...Object.fromEntries(limits), DATABASE_URL: database("first") }
  const sandbox = await newSandbox(settings)
  const chain = () =>
    createTestClient({ mode: "anvil", transport: http(sandbox.file().rpcUrl, { timeout: 120_000 }) }).extend(
      publicActions,
    )
  const token = (): Hex => sandbox.file().token.address
  const buyer = (): Hex => sandbox.file().buyers[0].address
  return {
    sandbox,
    settings,
    database,
    query,
    chain,
    dropped: () => query(postgres.url, "drop database first with (force)"),
    shell: (text: string) => {
      const PATH = `${postgresBinaries()}:${root}script:${process.env.PATH}`
      const env = { ...plainEnv(), PATH, DATABASE_URL: database("first"), RESTORED_URL: database("second") }
      return run("bash", ["-euo", "pipefail", "-c", text], { cwd: dir, env })
    },
    wallet: async (...args: string[]): Promise<string> =>
      (await run(join(root, "script/wallet"), args, { env: { ...plainEnv(), DATA_DIR: sandbox.dir } })).stdout,
    shown: async () => (await askAdmin(sandbox.dir, "/wallets"))[0],
    post: async (path: string, body: object) => {
      const headers = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
      const answer = await sandbox.call(path, body, headers)
      // For a transaction that the backup already has, the answer says so.
      assert.ok(answer.status < 300 || answer.body.error === "ALREADY_VERIFIED", JSON.stringify(answer.body))
      return answer.body
    },
    held: (address: Hex) =>
      chain().readContract({ address: token(), abi: erc20Abi, functionName: "balanceOf", args: [address] }),
    /** A buyer's wallet sends one token, and nobody submits it yet. */
    transfer: async (to: Hex): Promise<Hex> => {
      await chain().impersonateAccount({ address: buyer() })
      const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [to, 2n * HALF] })
      const params = [{ from: buyer(), to: token(), data }]
      return await chain().request({ method: "eth_sendTransaction", params } as never)
    },
    buyer,
    close: async () => {
      await sandbox.remove()
      await postgres.stop()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

type Stage = Awaited<ReturnType<typeof openStage>>

/** One paywall, divided between two, and everything that is paid there. */
async function openShop(stage: Stage) {
  const { post, sandbox, buyer, transfer } = stage
  const recipients = [A, B].map(address => ({ address, percent: 50 }))
  const { id: splitId } = await post("/api/console/splits", { name: "Two", recipients })
  const { id } = await post("/api/console/paywalls", { name: "Divided", price: "1", splitId })
  const { payTo } = (await sandbox.call(`/api/paywalls/${id}`)).body as { payTo: Hex }
  const hashes: Hex[] = []
  const submit = (txHash: Hex) => post(`/api/paywalls/${id}/pay`, { txHash, address: buyer() })
  return {
    payTo,
    due: () => BigInt(hashes.length) * HALF,
    pay: async (times: number) => {
      for (let i = 0; i < times; i++) {
        const { txHash } = await post("/sandbox/pay", { to: payTo, amount: "1" })
        hashes.push(txHash)
        await submit(txHash)
      }
    },
    payWhile: async (signal: AbortSignal, pauseMs: number) => {
      for (; !signal.aborted; await sleep(pauseMs)) hashes.push(await transfer(payTo))
    },
    /** Submits what was not submitted since `from`, and returns up to where it is submitted now. */
    submitFrom: async (from: number): Promise<number> => {
      const open = hashes.slice(from)
      for (const txHash of open) await submit(txHash)
      return from + open.length
    },
  }
}

/** Runs the drill; throws where anybody is paid twice or not at all, or the books differ from the chain. */
export async function drill({ before, meanwhile, after, blocks: passed, pauseMs }: Size): Promise<Times> {
  const stage = await openStage()
  const { sandbox, settings, database, query, chain, shell, wallet, shown, held } = stage
  const paid = async () => [await held(A), await held(B)] as const
  const isPaid = async (due: bigint) => (await paid()).every(amount => amount === due)
  try {
    const service = await sandbox.start()
    const shop = await openShop(stage)
    await shop.pay(before)
    await until("payouts are sent", async () => (await held(A)) > 0n)
    await Promise.all([shop.pay(meanwhile), shell(commandOf("sluice backup"))])
    await shop.pay(after)
    await until("all are paid", () => isPaid(shop.due()))
    // What was sent meanwhile is long final, and far from the head.
    await chain().mine({ blocks: passed })

    await service.kill("SIGKILL")
    await stage.dropped()
    const startedAt = performance.now()
    const seconds = () => (performance.now() - startedAt) / 1_000
    await shell(commandOf("pg_restore"))
    const restored = seconds()
    settings.DATABASE_URL = database("second")
    await sandbox.start()
    // The sandbox's chain ends with it, so buyers pay again from here on.
    const stop = new AbortController()
    const load = shop.payWhile(stop.signal, pauseMs)
    await until("the wallet is halted", async () => (await shown()).status === "halted")
    const halted = seconds()
    assert.match((await shown()).haltedReason ?? (await wallet("show")), /transactions of the wallet/)
    // What buyers submitted since the backup is gone with it; they ask again, or the scan finds it after ten minutes.
    const submitted = await shop.submitFrom(before)
    await until("all is adopted", async () =>
      (await wallet("adopt", "--all", "payout", "--reason", "restored")).includes(
        "Every final transaction of the wallet is known",
      ),
    )
    const adopted = seconds()
    stop.abort()
    await load
    await shop.submitFrom(submitted)
    await wallet("resume", "payout", "--reason", "restored")
    const resumed = seconds()
    const due = shop.due()
    await until("those who paid meanwhile are served", () => isPaid(due))
    const times = { restored, halted, adopted, resumed, paid: seconds() }

    await until("all is final", async () => {
      await chain().mine({ blocks: 10 })
      const open = await query(database("second"), "select id from payouts where state <> 'final'")
      const [made] = await query(database("second"), "select coalesce(sum(amount), 0) as sum from payouts")
      return open.length === 0 && BigInt(made.sum) === 2n * due
    })
    assert.deepEqual(await paid(), [due, due])
    assert.equal((await shown()).status, "active")
    const sums = "select sum(inflow) as inflow, sum(committed) as committed from deposit_books"
    const [books] = await query(database("second"), sums)
    assert.deepEqual([BigInt(books.inflow), BigInt(books.committed), await held(shop.payTo)], [2n * due, 2n * due, 0n])
    return times
  } finally {
    await stage.close()
  }
}
