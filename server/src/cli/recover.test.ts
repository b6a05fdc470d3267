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
import { plainEnv, root } from "../../test/e2e/program.ts"
import { DAY_MS, type Life, lifeOf } from "../../test/life.ts"
import { type PayoutRig, startPayoutRig } from "../../test/payouts.ts"
import { depositFactoryAbi } from "../chain/abi.ts"
import { checksummed } from "../chain/hex.ts"

const commands = [
  ...readFileSync(join(root, "docs/operations.md"), "utf8").matchAll(/^```sh recover\n([\s\S]*?)^```$/gm),
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
    const [dry, all] = [commands[0] ?? "", commands[1] ?? ""]
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
    expect(said).toContain("until then it leaves by the service alone")
    expect(said).not.toMatch(/^\s+at /m)
  })

  it.each([
    ["no node", "script/recover --terms deposits.csv", "--rpc is missing"],
    ["no terms", "script/recover --rpc https://rpc.example", "--factory is missing"],
    ["a file that is none", "script/recover --rpc https://rpc.example --terms nowhere.csv", "nowhere.csv"],
    ["a file of another kind", "script/recover --rpc https://rpc.example --terms key", "no column address"],
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
    [
      "a node that is none",
      "script/recover --rpc http://127.0.0.1:1 --terms deposits.csv",
      "The node at http://127.0.0.1:1 can't be asked",
    ],
  ])("explains %s in words", async (_what, command, words) => {
    const { code, said } = await shell(command)
    expect([code, said]).toEqual([1, expect.stringContaining(words)])
    expect(said).not.toMatch(/^\s+at /m)
  })

  it("needs a valid key, and says so", async () => {
    await life.send(deposit(0).address, 1n)
    await life.advance(366 * DAY_MS)
    const run = "script/recover --rpc https://rpc.example --terms deposits.csv"
    expect(await shell(run)).toMatchObject({ code: 1, said: expect.stringContaining("A key is needed") })
    expect(await shell(`echo secret | ${run} --key-file -`)).toMatchObject({
      code: 1,
      said: expect.stringContaining("The key is not"),
    })
    const poor = await shell(`echo ${toHex(1n, { size: 32 })} | ${run} --key-file -`)
    expect(poor.code).toBe(1)
    expect(poor.said).toContain("1 of 1 could not be recovered")
  })

  it("is not needed: the document's calldata does the same", async () => {
    // What \`cast send FACTORY 'recover(…)' …\` sends.
    const [, signature] = /'(recover\([^']+)'/.exec(readFileSync(join(root, "docs/operations.md"), "utf8")) ?? []
    expect(toFunctionSelector(`function ${signature}`)).toBe(
      toFunctionSelector(getAbiItem({ abi: depositFactoryAbi, name: "recover" })),
    )
  })
})
