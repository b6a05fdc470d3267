// Anyone can send a deposit's money to its owner after the recovery time, with the service stopped, by the commands in
// the docs.
import { execFile } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { getAbiItem, toFunctionSelector, toHex } from "viem"
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { plainEnv, root } from "../../../test/e2e/program.ts"
import { DAY_MS, type Life, lifeOf } from "../../../test/life.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { depositFactoryAbi } from "../../platform/chain/abi.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { recoverDeposits } from "./recover.ts"

const commands = [
  ...readFileSync(join(root, "docs/operators/operations.md"), "utf8").matchAll(/^```sh recover\n([\s\S]*?)^```$/gm),
].map(match => match[1] ?? "")

let rig: PayoutRig
let life: Life
let dir: string
let shops: Awaited<ReturnType<PayoutRig["sell"]>>[]
beforeAll(async () => {
  rig = await startPayoutRig()
  life = lifeOf(rig)
})
afterAll(() => rig.stop())
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "sluice-recover-"))
  await life.begin()
  shops = [await rig.sell(), await rig.sell([50, 50]), await rig.sell()]
  const { body } = await rig.service.call("GET", "/api/console/deposits.csv", undefined, { as: "shop" })
  writeFileSync(join(dir, "deposits.csv"), body)
  // Any account with a little gas; it has nothing to do with the service.
  const key = generatePrivateKey()
  await rig.anvil.client.setBalance({ address: privateKeyToAddress(key), value: 10n ** 18n })
  writeFileSync(join(dir, "key"), `${key}\n`, { mode: 0o600 })
  return () => rmSync(dir, { recursive: true })
})

/**
 * Runs lines of the document in a shell, in a folder that contains the files they name, with this chain as the node.
 */
async function shell(text: string) {
  const here = text.replaceAll("https://rpc.example", rig.anvil.rpcUrl).replaceAll("script/", `${root}script/`)
  const run = promisify(execFile)("bash", ["-euo", "pipefail", "-c", here], {
    cwd: dir,
    env: { ...plainEnv(), PATH: `${root}script:${process.env.PATH}` },
  })
  return await run.then(
    ({ stdout }) => ({ code: 0, said: stdout }),
    ({ code, stdout, stderr }) => ({ code, said: `${stdout}${stderr}` }),
  )
}

const deposit = (n: number) => {
  const found = shops[n]?.deposit
  if (!found) throw new Error("no such shop")
  return found
}

describe("script/recover", () => {
  it("sends the money in all deposits to their owners, as the document says", async () => {
    const dry = commands[0] ?? ""
    const all = commands[1] ?? ""
    await life.send(deposit(0).address, 1_500_000n)
    await life.send(deposit(1).address, 250_000n)
    const owner = deposit(0).owner
    const before = await rig.balanceOf(owner)
    const early = await shell(all)
    expect(early.said).toContain("2 of 3 addresses hold money.")
    expect(early.said).toMatch(/holds 1\.5 USDC and opens after \d{4}-\d\d-\d\dT/)
    expect(await rig.balanceOf(owner)).toBe(before)
    await life.advance(366 * DAY_MS)
    const tried = await shell(dry)
    expect(tried).toMatchObject({ code: 0, said: expect.stringContaining("Would send 1.5 USDC from") })
    expect(await rig.balanceOf(owner)).toBe(before)
    const { code, said } = await shell(all)
    expect(said).toContain(
      `Sent 1.5 USDC from ${checksummed(deposit(0).address)} to its owner ${checksummed(owner)}: 0x`,
    )
    expect(code).toBe(0)
    expect(await rig.balanceOf(owner)).toBe(before + 1_750_000n)
    expect((await shell(all)).said).toContain("0 of 3 addresses hold money.")
    // The deposit is deployed by now. Money that arrives later is recovered in the same way.
    await life.send(deposit(0).address, 7n)
    expect((await shell(all)).said).toContain("Sent 0.000007 USDC")
    expect(await rig.balanceOf(owner)).toBe(before + 1_750_007n)
  })

  it("sends one that is named by its address, or by its terms alone, with the key from anywhere but an argument", async () => {
    await life.send(deposit(0).address, 1n)
    await life.send(deposit(2).address, 2n)
    await life.advance(366 * DAY_MS)
    const { factory, salt, owner, approver, payees_hash: payeesHash, open_after_s: openAfter } = deposit(2)
    const before = await rig.balanceOf(owner)
    const one = `script/recover --rpc https://rpc.example --terms deposits.csv --address ${deposit(0).address} --key-file -`
    expect((await shell(`${one} < key`)).said).toContain("Sent 0.000001 USDC")
    const parties = `--owner ${owner} --approver ${approver} --payees-hash ${payeesHash}`
    const terms = `--factory ${factory} --salt ${salt} ${parties} --open-after ${openAfter} --token ${rig.token}`
    const single = await shell(`script/recover --rpc https://rpc.example ${terms} --key-file key`)
    expect(single.said).toContain("Sent 0.000002 USDC")
    expect(await rig.balanceOf(owner)).toBe(before + 3n)
  })

  it("sends ether at any time, and says so", async () => {
    const { address, owner } = deposit(0)
    await rig.anvil.client.setBalance({ address, value: 3n * 10n ** 17n })
    const before = await rig.anvil.client.getBalance({ address: owner })
    const run = `script/recover --rpc https://rpc.example --terms deposits.csv --token 0x${"0".repeat(40)} --key-file key`
    expect(await shell(run)).toMatchObject({ code: 0, said: expect.stringContaining("Sent 0.3 ether") })
    expect(await rig.anvil.client.getBalance({ address: owner })).toBe(before + 3n * 10n ** 17n)
  })

  it("refuses, and names the date, while the deposit that was named is not open", async () => {
    await life.send(deposit(0).address, 1n)
    const one = `script/recover --rpc https://rpc.example --terms deposits.csv --address ${deposit(0).address} --key-file key`
    const { code, said } = await shell(one)
    expect(code).toBe(1)
    expect(said).toContain(new Date(Number(deposit(0).open_after_s) * 1_000).toISOString())
    expect(said).toContain("until then only the service can send the money")
    expect(said).not.toMatch(/^\s+at /m)
  })

  const TERMS = "--rpc https://rpc.example --terms deposits.csv"
  it.each([
    ["no node", "script/recover --terms deposits.csv", "--rpc is missing"],
    [
      "a node that is no URL",
      "script/recover --rpc x --terms deposits.csv --dry-run",
      "--rpc must be an http(s) address.",
    ],
    [
      "no terms",
      "script/recover --rpc x",
      "--factory is missing. Name all terms of one deposit, or a file with --terms FILE.",
    ],
    ["one term of many", `script/recover --rpc x --factory 0x${"1".repeat(40)}`, "--salt is missing."],
    [
      "a file that is none",
      "script/recover --rpc https://rpc.example --terms nowhere.csv",
      "nowhere.csv can't be read: ENOENT.\nRun `sluice recover --help`",
    ],
    ["a file of another kind", "script/recover --rpc https://rpc.example --terms key", "no column address"],
    ["no key", `script/recover ${TERMS}`, "Sending needs a key: --key-file."],
    ["a key that is none", `echo secret | script/recover ${TERMS} --key-file -`, "The key must be 0x and 64"],
    ["a file of a key that is none", `script/recover ${TERMS} --key-file no`, "--key-file no can't be read: ENOENT."],
    [
      "an address that is not in it",
      `script/recover --rpc https://rpc.example --terms deposits.csv --address 0x${"1".repeat(40)}`,
      "is not in",
    ],
    [
      "an address that is none",
      "script/recover --rpc https://rpc.example --terms deposits.csv --address 0x1",
      "--address can't be read",
    ],
    [
      "terms that were changed",
      `sed -i '2s/,0x[0-9a-f]\\{64\\}/,0x${"1".repeat(64)}/' deposits.csv && script/recover --rpc https://rpc.example --terms deposits.csv`,
      "the terms do not belong to the address",
    ],
  ])("explains %s in words, and exits with 2", async (_what, command, words) => {
    const { code, said } = await shell(command)
    expect([code, said]).toEqual([2, expect.stringContaining(words)])
    expect(said).not.toMatch(/^\s+at /m)
  })

  it("explains a node that is not there, and exits with 1", async () => {
    const { code, said } = await shell("script/recover --rpc http://127.0.0.1:1 --terms deposits.csv --dry-run")
    expect([code, said]).toEqual([1, expect.stringContaining("The node at http://127.0.0.1:1 can't be reached")])
  })

  it("says while it waits for a block, and how to go on when none comes; to run it again is safe", async () => {
    const { client, rpcUrl } = rig.anvil
    await life.send(deposit(0).address, 5n)
    await life.send(deposit(2).address, 6n)
    await life.advance(366 * DAY_MS)
    const before = await rig.balanceOf(deposit(0).owner)
    const args = ["--rpc", rpcUrl, "--terms", join(dir, "deposits.csv"), "--key-file", join(dir, "key")]
    const lines: string[] = []
    const run = () => recoverDeposits(args, { say: line => void lines.push(line), patienceMs: 1 })
    await client.setAutomine(false)
    const failure = await run().then(
      () => undefined,
      (error: Error) => error.message,
    )
    await client.setAutomine(true)
    expect(failure).toMatch(
      /^The transaction 0x[0-9a-f]{64} is still not in a block after \d+ s. .* safely run this command again, .* 1 more address was not tried.$/,
    )
    const [hash] = /0x[0-9a-f]{64}/.exec(failure ?? "") ?? []
    // The file has the newest first.
    expect(lines).toContain(`Waiting for the transaction ${hash}, which empties ${checksummed(deposit(2).address)}.`)
    await client.mine({ blocks: 1 })
    expect(await rig.balanceOf(deposit(0).owner)).toBe(before + 6n)
    await recoverDeposits(args, { say: line => void lines.push(line), patienceMs: 60_000 })
    expect(lines.at(-1)).toContain("Sent 0.000005 USDC")
    expect(await rig.balanceOf(deposit(0).owner)).toBe(before + 11n)
  })

  it("counts what could not be sent", async () => {
    await life.send(deposit(0).address, 1n)
    await life.advance(366 * DAY_MS)
    const run = "script/recover --rpc https://rpc.example --terms deposits.csv"
    const poor = await shell(`echo ${toHex(1n, { size: 32 })} | ${run} --key-file -`)
    expect(poor.code).toBe(1)
    expect(poor.said).toContain("1 of 1 could not be recovered")
  })

  it("is not needed: the document's calldata does the same", async () => {
    // What \`cast send FACTORY 'recover(…)' …\` sends.
    const [, signature] =
      /'(recover\([^']+)'/.exec(readFileSync(join(root, "docs/operators/operations.md"), "utf8")) ?? []
    expect(toFunctionSelector(`function ${signature}`)).toBe(
      toFunctionSelector(getAbiItem({ abi: depositFactoryAbi, name: "recover" })),
    )
  })
})
