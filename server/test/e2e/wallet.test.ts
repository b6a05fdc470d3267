// script/wallet as an operator runs it, against a running sandbox: what it says, how it ends, and that no port answers it.
import { spawn } from "node:child_process"
import { once } from "node:events"
import { cpSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir, userInfo } from "node:os"
import { join } from "node:path"
import { createPublicClient, createTestClient, erc20Abi, type Hex, http, parseAbiItem } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { askAdmin } from "./admin.ts"
import { newSandbox, plainEnv, type Run, root, type Sandbox, until } from "./program.ts"

const A = `0x${"a1".repeat(20)}` as Hex
const B = `0x${"b2".repeat(20)}` as Hex
/** A transaction and a payout that do not exist. */
const HASH = `0x${"5".repeat(64)}`
const ID = "00000000-0000-0000-0000-000000000000"

/** A list that names nobody here, or the recipients. */
const lists = mkdtempSync(join(tmpdir(), "sluice-lists-"))
const SANCTIONS_FILE = join(lists, "sdn.txt")
const list = (...addresses: string[]) => writeFileSync(SANCTIONS_FILE, [`0x${"5".repeat(40)}`, ...addresses].join("\n"))

let sandbox: Sandbox
let run: Run
beforeAll(async () => {
  list()
  sandbox = await newSandbox({ LIMIT_CONSOLE: "0", LIMIT_PUBLIC: "0", SANCTIONS_FILE }, "migrated")
  run = await sandbox.start()
})
afterAll(async () => {
  await sandbox?.remove()
  rmSync(lists, { recursive: true, force: true })
})

/** Runs `script/wallet` as somebody who knows the data folder and nothing else; `as` changes the user. */
async function wallet(
  args: string[],
  dir = sandbox.dir,
  as: string[] = [],
): Promise<{ code: number; out: string; err: string }> {
  const [program = "", ...rest] = [...as, join(root, "script/wallet"), ...args]
  const child = spawn(program, rest, {
    env: { ...plainEnv(), DATA_DIR: dir },
    stdio: ["ignore", "pipe", "pipe"],
  })
  let out = ""
  let err = ""
  child.stdout.on("data", chunk => (out += chunk))
  child.stderr.on("data", chunk => (err += chunk))
  const [code] = await once(child, "close")
  return { code, out, err }
}
const shown = async () => (await askAdmin(sandbox.dir, "/wallets"))[0]
const chain = () => createTestClient({ mode: "anvil", transport: http(sandbox.file().rpcUrl, { timeout: 120_000 }) })
const reader = () => createPublicClient({ transport: http(sandbox.file().rpcUrl, { timeout: 120_000 }) })
const balance = (address: Hex) =>
  reader().readContract({
    address: sandbox.file().token.address,
    abi: erc20Abi,
    functionName: "balanceOf",
    args: [address],
  })
async function post(path: string, body: object) {
  const headers = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
  const answer = await sandbox.call(path, body, headers)
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
  return answer.body
}

/** Sells something that is divided among A and B, and pays for it, whatever `before` does in between. */
async function sellOne(before: () => unknown = () => {}): Promise<void> {
  const recipients = [
    { address: A, percent: 50 },
    { address: B, percent: 50 },
  ]
  const { id: splitId } = await post("/api/console/splits", { name: "Two", recipients })
  const { id } = await post("/api/console/paywalls", { name: "Divided", price: "1", splitId })
  const { payTo } = (await sandbox.call(`/api/paywalls/${id}`)).body
  await before()
  const { txHash } = await post("/sandbox/pay", { to: payTo, amount: "1" })
  await post(`/api/paywalls/${id}/pay`, { txHash, address: sandbox.file().buyers[0].address })
}

/** A user whom the system has no name for, as a container's may be. It may open the socket, and reach this folder. */
const NAMELESS = 54_321
const asNameless = [
  "setpriv",
  `--reuid=${NAMELESS}`,
  `--regid=${NAMELESS}`,
  "--clear-groups",
  "--inh-caps=+dac_override,+dac_read_search",
  "--ambient-caps=+dac_override,+dac_read_search",
]

describe("script/wallet", () => {
  it.runIf(process.getuid?.() === 0)("records what a user without a name does, by its number", async () => {
    await until("the wallet is known", async () => (await shown()) !== undefined)
    const by = (...args: string[]) => wallet(args, sandbox.dir, asNameless)
    expect(await by("halt", "payout", "--reason", "no name")).toMatchObject({ code: 0, err: "" })
    expect((await wallet(["show"])).out).toContain(`halted: by uid ${NAMELESS}: no name`)
    expect(await by("resume", "payout", "--reason", "seen")).toMatchObject({ code: 0, err: "" })
    // Refused by the service, which it reached.
    for (const args of [
      ["adopt", HASH],
      ["retry", ID],
      ["cancel", ID, "--reason", "r"],
    ])
      expect(await by(...args)).toMatchObject({ code: 1, err: expect.not.stringContaining("uv_os") })
    expect((await wallet(["log"])).out).toContain(`by uid ${NAMELESS}`)
  })

  it("shows, halts and resumes the wallet, and says what was done by whom", async () => {
    await until("the wallet is known", async () => (await shown()) !== undefined)
    expect(JSON.parse((await wallet(["show", "--json"])).out).data).toMatchObject([
      { lane: "payout", status: "active" },
      { lane: "relay" },
    ])
    const first = await wallet(["show"])
    expect(first).toMatchObject({ code: 0, err: "" })
    expect(first.out).toMatch(
      /^payout wallet 0x[0-9a-fA-F]{40} on base-sepolia: active\n {2}next nonce \d+; the chain has/,
    )

    // A halted wallet stops selling; what was offered before is still found.
    await sellOne(async () => {
      const halted = await wallet(["halt", "payout", "--reason", "a look"])
      expect(halted).toMatchObject({ code: 0, out: expect.stringContaining("is halted. Nothing is signed or sent") })
      expect(await wallet(["halt", "payout", "--reason", "again"])).toMatchObject({
        code: 1,
        out: "",
        err: `The wallet is already halted: by ${userInfo().username}: a look\n`,
      })
    })
    await until("the shares wait", async () => (await shown()).waiting.queued === 2)
    const { out } = await wallet(["show"])
    expect(out).toContain(`halted: by ${userInfo().username}: a look`)
    expect(out).toContain("waiting: queued 2")

    const payouts = async () => (await shown()).inFlight.length
    expect(await payouts()).toBe(0)
    expect(await wallet(["resume", "payout", "--reason", "looked"])).toMatchObject({ code: 0, err: "" })
    await until("the shares are paid", async () => (await balance(A)) === 500_000n && (await balance(B)) === 500_000n)
    expect(await wallet(["resume", "payout", "--reason", "again"])).toMatchObject({ code: 1 })
    const log = (await wallet(["log"])).out
    expect(log).toMatch(/ {2}resume {2}by .*\n {2}reason: looked\n.*\n\n.* {2}halt {2}by /)
    expect((await wallet(["held"])).out).toBe("Nothing is held.\n")
  })

  it("empties a nonce that can't be mined, through a kill of the service, and everyone is paid once", async () => {
    const before = [await balance(A), await balance(B)]
    await sellOne(() => wallet(["halt", "payout", "--reason", "the blocks get smaller"]))
    await until("the shares wait", async () => (await shown()).waiting.queued === 2)
    // No block takes a payout any more; it takes an empty transfer.
    await chain().setBlockGasLimit({ gasLimit: 30_000n })
    await wallet(["resume", "payout", "--reason", "let's see"])
    const flying = async () => (await shown()).inFlight
    // What was sold before may still be in flight. A payout that waits for 30 s, as on a slow machine, has a second attempt.
    const stuck = async () =>
      ((await flying()) as { nonce: string; payout: string; lastResult: string }[]).filter(
        ({ lastResult }) => lastResult === "alarm",
      )
    await until("both can't be mined", async () => new Set((await stuck()).map(({ payout }) => payout)).size === 2)
    const [{ nonce, payout } = { nonce: "", payout: "" }] = await stuck()
    expect(await wallet(["unstick", "payout", `${Number(nonce) + 1}`, "--reason", "x"])).toMatchObject({
      code: 1,
      err: `Only the lowest unmined nonce, ${nonce}, can be replaced.\n`,
    })
    const done = await wallet(["unstick", "payout", nonce, "--reason", "too large for a block", "--max-fee", "900"])
    expect(done).toMatchObject({ code: 0, out: expect.stringContaining("replaced by an empty transfer") })
    await run.kill("SIGKILL")
    run = await sandbox.start()
    await chain().setBlockGasLimit({ gasLimit: 30_000_000n })
    await until("all that has a nonce is final", async () => {
      await chain().mine({ blocks: 10 })
      return (await flying()).length === 0
    })
    const held = JSON.parse((await wallet(["held", "--json"])).out).data
    expect(held).toMatchObject([{ reason: "reverted", amount: "0.50" }])
    expect(held[0].id).not.toBe(payout)
    expect(await wallet(["retry", held[0].id])).toMatchObject({ code: 0, err: "" })
    const gained = async () => [(await balance(A)) - (before[0] ?? 0n), (await balance(B)) - (before[1] ?? 0n)]
    await until("both are paid", async () => (await gained()).every(amount => amount > 0n))
    await chain().mine({ blocks: 70 })
    await until("nothing is on its way", async () => (await flying()).length === 0)
    expect(await gained()).toEqual([500_000n, 500_000n])
    expect((await wallet(["log"])).out).toContain(`  unstick  by ${userInfo().username}`)
  })

  it("mends the wallet after an old copy of the data folder was put back, and nobody is paid twice", async () => {
    const before = [await balance(A), await balance(B)]
    const since = await reader().getBlockNumber()
    await sellOne(() => list(A, B))
    const held = () => askAdmin(sandbox.dir, "/held")
    await until("both are held", async () => (await held()).length === 2)
    expect((await wallet(["held"])).out).toMatch(
      / {2}sanctions {2}share of 0\.50 to 0x[\s\S]*\n {2}listed by file at 20/,
    )
    await run.kill("SIGTERM")
    cpSync(join(sandbox.dir, "db"), join(lists, "backup"), { recursive: true })

    run = await sandbox.start()
    list()
    for (const { id } of await held()) expect((await wallet(["retry", id, "--reason", "not listed"])).code).toBe(0)
    const gained = async () => [(await balance(A)) - (before[0] ?? 0n), (await balance(B)) - (before[1] ?? 0n)]
    await until("both are paid", async () => (await gained()).every(amount => amount > 0n))
    await chain().mine({ blocks: 70 })
    await run.kill("SIGTERM")
    rmSync(join(sandbox.dir, "db"), { recursive: true })
    cpSync(join(lists, "backup"), join(sandbox.dir, "db"), { recursive: true })

    run = await sandbox.start()
    expect(await shown()).toMatchObject({ status: "halted", waiting: { "held: sanctions": 2 } })
    expect((await wallet(["show"])).out).toMatch(
      /halted: the chain has \d+ transactions .* old backup[\s\S]*unexplained: /,
    )
    const refused = await wallet(["resume", "payout", "--reason", "a backup"])
    expect([refused.code, refused.err]).toEqual([1, expect.stringContaining("sluice wallet adopt HASH")])
    const event = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)")
    const logs = await reader().getLogs({ event, args: { to: [A, B] }, fromBlock: since + 1n, toBlock: "latest" })
    expect(logs.length).toBe(2)
    for (const { transactionHash } of logs)
      expect(await wallet(["adopt", transactionHash])).toMatchObject({
        code: 0,
        out: expect.stringContaining("pays the payout"),
      })
    expect(await wallet(["resume", "payout", "--reason", "a backup was put back"])).toMatchObject({ code: 0, err: "" })
    await until("all is final", async () => (await shown()).inFlight.length === 0)
    expect([await held(), await gained()]).toEqual([[], [500_000n, 500_000n]])
    // And it goes on paying.
    await sellOne()
    await until("the next are paid", async () => (await gained()).every(amount => amount === 1_000_000n))
  })

  it("is a socket for its owner, and nothing on the port", async () => {
    const path = join(sandbox.dir, "admin.sock")
    expect(statSync(path).mode & 0o777).toBe(0o600)
    for (const at of ["/wallets", "/held", "/log", "/halt", "/admin/wallets"]) {
      expect((await sandbox.call(at)).status).toBe(404)
      expect((await sandbox.call(at, { wallet: "payout", reason: "x", by: "x" })).status).toBe(404)
    }
    expect((await shown()).status).toBe("active")
  })

  it("prints its usage, and what is wrong in a command line", async () => {
    expect(await wallet(["--help"])).toMatchObject({
      code: 0,
      out: expect.stringContaining("sluice wallet unstick WALLET"),
    })
    for (const [args, words] of [
      [[], /Name a command/],
      [["shew"], /no command shew/],
      [["halt"], /halt takes WALLET/],
      [["halt", "a", "b"], /halt takes WALLET/],
      [["show", "--reason", "x"], /show has no --reason/],
      [["show", "--verbose"], /no option --verbose/],
      [["halt", "payout"], /^--reason is required/],
      [["halt", "payout", "--reason", ""], /^--reason is required/],
      [["resume", "payout"], /^--reason is required/],
      [["cancel", "7"], /^--reason is required/],
      [["cancel", "7", "--reason", "x"], /^PAYOUT must be the id of a payout, as `sluice wallet held` shows it\.$/m],
      [["retry", "7"], /^PAYOUT must be the id of a payout/],
      [["adopt", "7"], /^HASH must be a transaction hash: 0x and 64 hexadecimal digits\.$/m],
      [["adopt", HASH, "--payout", "7"], /^--payout must be the id of a payout/],
      [["adopt", HASH, "--foreign"], /^--reason is required with --foreign/],
      [["adopt", HASH, "--foreign", "--reason", "x", "--payout", ID], /^--payout can't be given with --foreign/],
      [["unstick", "payout", "-1", "--reason", "x"], /^There is no option -1/],
      [["unstick", "payout", "one", "--reason", "x"], /^NONCE must be a nonce, a whole number\.$/m],
      [
        ["unstick", "payout", "1", "--reason", "x", "--max-fee", "0.5"],
        /^--max-fee must be a whole number of gwei from 1/,
      ],
      // Only the service knows these.
      [["halt", "payout", "--network", "bse", "--reason", "x"], /^--network must be one of: base, /],
      [["halt", "w".repeat(43), "--reason", "x"], /^WALLET must have at most 42 characters\.$/m],
      [["retry", "--all", "--held", "x"], /^--held must be one of: /],
    ] as [string[], RegExp][]) {
      const { code, err } = await wallet(args)
      expect([code, err]).toEqual([2, expect.stringMatching(words)])
      expect(err).toContain("--help")
    }
    const unknown = await wallet(["adopt", HASH])
    expect([unknown.code, unknown.err]).toEqual([1, expect.stringContaining("No endpoint of these networks knows")])
    const nobody = mkdtempSync(join(tmpdir(), "sluice-none-"))
    try {
      expect(await wallet(["show"], nobody)).toMatchObject({
        code: 3,
        err: expect.stringContaining("Check that the service is running"),
      })
    } finally {
      rmSync(nobody, { recursive: true })
    }
  })

  it("goes away with the service", async () => {
    await run.kill("SIGTERM")
    expect(existsSync(join(sandbox.dir, "admin.sock"))).toBe(false)
    expect((await wallet(["show"])).code).toBe(3)
  })
})
