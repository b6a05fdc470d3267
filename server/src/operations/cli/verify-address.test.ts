// The command against the contract's own computation, over random terms, and every term changed.
import { execFile } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import fc from "fast-check"
import type { Hex } from "viem"
import { afterAll, beforeAll, expect, it } from "vitest"
import { type Anvil, deployDepositFactory, startAnvil } from "../../../test/anvil.ts"
import { root } from "../../../test/e2e/program.ts"
import { factoryDeployment } from "../../ledger/deposits/factory-deployment.ts"
import { depositFactoryAbi } from "../../platform/chain/abi.ts"
import { addressOfTerms, type Payee, payeesHash, type TermsArgument } from "../../platform/chain/deposit-terms.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { UsageError } from "./run-command.ts"
import { verifyAddress } from "./verify-address.ts"

let anvil: Anvil
let factory: Address
let dir: string
beforeAll(async () => {
  anvil = await startAnvil()
  factory = await deployDepositFactory(anvil.client, anvil.accounts[1].address)
  dir = mkdtempSync(join(tmpdir(), "sluice-verify-"))
})
afterAll(async () => {
  await anvil.stop()
  rmSync(dir, { recursive: true })
})

const hex = (bytes: number) =>
  fc.uint8Array({ minLength: bytes, maxLength: bytes }).map(each => `0x${Buffer.from(each).toString("hex")}` as Hex)
const addressBy = (salt: Hex, terms: Omit<TermsArgument, "payeesHash">, payees: Payee[] = []) =>
  anvil.client.readContract({
    address: factory,
    abi: depositFactoryAbi,
    functionName: "addressOf",
    args: [salt, { ...terms, payeesHash: payeesHash(payees) }],
  })
const listOf = (payees: Payee[]) => payees.map(({ address, percentE4 }) => `${address}=${percentE4 / 10_000}`).join(" ")
const noFile = () => {
  throw new Error("no file is read")
}
const flags = (terms: Record<string, string>) => Object.entries(terms).flatMap(([name, value]) => [`--${name}`, value])

it("agrees with the contract on random terms, and not when any of them is another", async () => {
  const payee = fc.record({
    address: hex(20) as fc.Arbitrary<Address>,
    percentE4: fc.integer({ min: 1, max: 999_999 }),
  })
  const terms = fc.record({
    salt: hex(32),
    owner: hex(20) as fc.Arbitrary<Address>,
    approver: hex(20) as fc.Arbitrary<Address>,
    payees: fc.array(payee, { maxLength: 4 }),
    openAfter: fc.bigInt({ min: 0n, max: 2n ** 64n - 2n }),
    other: hex(20) as fc.Arbitrary<Address>,
  })
  await fc.assert(
    fc.asyncProperty(terms, async ({ salt, owner, approver, payees, openAfter, other }) => {
      const address = await addressBy(salt, { owner, approver, openAfter }, payees)
      const right = { factory, salt, owner, approver, payees: listOf(payees), "open-after": `${openAfter}` }
      const { ok, text } = verifyAddress([address, ...flags(right)], noFile)
      expect([ok, text]).toEqual([true, expect.stringContaining(`can send what is left to ${checksummed(owner)}`)])
      for (const { address } of payees) expect(text).toContain(checksummed(address))
      const wrong = [
        { factory: other },
        { salt: `${other}${"00".repeat(12)}` },
        { owner: other },
        { approver: other },
        { payees: listOf([...payees, { address: other, percentE4: 1 }]) },
        { "open-after": `${openAfter + 1n}` },
      ]
      for (const change of wrong)
        expect(verifyAddress([address, ...flags({ ...right, ...change })], noFile)).toMatchObject({
          ok: false,
          text: expect.stringContaining(`${address} does NOT belong to these terms`),
        })
    }),
    { numRuns: 40 },
  )
})

it("takes the terms from deposits.csv, as a command that reaches no network", async () => {
  const salt = `0x${"5a".repeat(32)}` as Hex
  const owner = anvil.accounts[2].address as Address
  const payees = [
    { address: `0x${"c1".repeat(20)}` as Address, percentE4: 666_667 },
    { address: `0x${"c2".repeat(20)}` as Address, percentE4: 333_333 },
  ]
  const address = await addressBy(salt, { owner, approver: factory, openAfter: 1_893_456_000n }, payees)
  const file = join(dir, "deposits.csv")
  const line = (openAfter: number) =>
    `address,chain,chainId,factory,salt,owner,approver,payees,openAfter\r\n${address},base,8453,${factory},${salt},${owner},${factory},${listOf(payees)},${openAfter}\r\n`
  const run = (args: string[]) =>
    promisify(execFile)(join(root, "script/verify-address"), args, { cwd: dir }).then(
      ({ stdout }) => ({ code: 0, said: stdout }),
      ({ code, stdout, stderr }) => ({ code, said: `${stdout}${stderr}` }),
    )
  writeFileSync(file, line(1_893_456_000))
  expect(await run([address.toLowerCase(), "--terms", "deposits.csv"])).toMatchObject({
    code: 0,
    said: expect.stringMatching(
      /\(66\.6667 %\).*\n.*leaves returns to the service\.\nAfter 2030-01-01T00:00:00\.000Z anyone/,
    ),
  })
  writeFileSync(file, line(1_893_456_001))
  expect(await run([address, "--terms", "deposits.csv"])).toMatchObject({
    code: 1,
    said: expect.stringContaining("does NOT"),
  })
  expect(await run([address, "--terms", "none.csv"])).toEqual({
    code: 2,
    said: "none.csv can't be read: ENOENT.\nRun `sluice verify-address --help` for its usage.\n",
  })
})

it("vouches for Sluice's factory alone, where its guardian and first operator are named", () => {
  const guardian = `0x${"33".repeat(20)}` as Address
  const operator = `0x${"44".repeat(20)}` as Address
  const ours = factoryDeployment({ guardian, operator }).address
  const verify = (factory: Address, ...more: string[]) => {
    const terms = { owner: guardian, approver: guardian, openAfter: 1n, payeesHash: payeesHash([]) }
    const address = addressOfTerms(factory, `0x${"22".repeat(32)}`, terms)
    return verifyAddress(
      [address, ...flags({ ...good, factory, owner: guardian, approver: guardian }), ...more],
      noFile,
    )
  }
  const parties = ["--guardian", guardian, "--operator", operator]
  expect(verify(ours, ...parties)).toMatchObject({ ok: true, text: expect.not.stringContaining("This holds only if") })
  expect(verify(guardian, ...parties)).toMatchObject({
    ok: false,
    text: expect.stringContaining("NOT Sluice's factory"),
  })
  expect(verify(guardian)).toMatchObject({
    ok: true,
    text: expect.stringContaining("To check that too, name its --guardian"),
  })
})

const A = `0x${"11".repeat(20)}`
const S = `0x${"22".repeat(32)}`
const good = { factory: A, salt: S, owner: A, approver: A, "open-after": "1" }
it.each<[string, string[], RegExp, string?]>([
  ["no address", [], /^Name one address\.$/],
  ["two addresses", [A, A], /^Name one address\.$/],
  ["a wrong address", ["0x12"], /^The address must be/],
  ["a missing term", [A, "--factory", A, "--salt", S, "--owner", A, "--approver", A], /^--open-after is missing\.$/],
  ["a wrong salt", [A, ...flags({ ...good, salt: A })], /^--salt must be 32 bytes/],
  [
    "a time beyond 64 bits",
    [A, ...flags({ ...good, "open-after": `${2n ** 64n}` })],
    /^--open-after must be a time in Unix/,
  ],
  ["payees without percentages", [A, ...flags({ ...good, payees: A })], /^--payees must be a list like/],
  ["terms from two places", [A, "--terms", "f", "--owner", A], /^--terms can't be combined with single terms\.$/],
  [
    "a file of another kind",
    [A, "--terms", "f"],
    /^f has no column address; it must be the console's deposits\.csv/,
    "a,b\n1,2",
  ],
  [
    "a file without it",
    [A, "--terms", "f"],
    /^f does not have the address 0x1111/,
    "address,factory,salt,owner,approver,payees,openAfter\n",
  ],
  [
    "a line that is damaged",
    [A, "--terms", "f"],
    /^salt in f must be 32 bytes/,
    `address,factory,salt,owner,approver,payees,openAfter\n${A},${A},x,${A},${A},,1`,
  ],
])("says what is wrong with %s", (_what, args, words, text = "") => {
  expect(() => verifyAddress(args, () => text)).toThrow(UsageError)
  expect(() => verifyAddress(args, () => text)).toThrow(words)
})
