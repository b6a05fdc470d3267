// What a receipt is worth: it verifies from the holder's file and the chain alone, and nothing that was changed does.
import { execFileSync } from "node:child_process"
import { generateKeyPairSync } from "node:crypto"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { sql } from "kysely"
import { encodeFunctionData } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { readLinked } from "../../../../verify/src/file.ts"
import {
  open,
  type PublicKey,
  padded,
  readReceipt,
  type SavedReceipt,
  thumbprint,
} from "../../../../verify/src/format.ts"
import { pathOf, rootOf, treeOf } from "../../../../verify/src/merkle.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { receiptsOn } from "../../../test/receipts.ts"
import { receiptAnchorAbi } from "../../platform/chain/abi.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { anchorDeployment } from "../../platform/chain/receipt-anchor.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { factHash, makeSealed } from "./receipt.ts"
import { readBatch } from "./store-batches.ts"

const ALL = "yyyyyy-"
let rig: PayoutRig
let on: ReturnType<typeof receiptsOn>
let merchantId: string
const payments: string[] = []
const dataDir = mkdtempSync(join(tmpdir(), "receipts-"))
beforeAll(async () => {
  rig = await startPayoutRig({ dataDir, receipts: { batchMs: 1_000, anchorMs: 1_000 } })
  on = receiptsOn(rig)
  await rig.empty()
  const shop = await rig.sell([50, 50])
  for (let i = 0; i < 5; i++) payments.push(await rig.paid(shop, 1_000_000n + BigInt(i)))
  merchantId = shop.deposit.merchant_id
  await on.finish()
})
afterAll(async () => {
  await rig?.stop()
  rmSync(dataDir, { recursive: true, force: true })
})

const first = () => on.saved(payments[0] ?? "")

describe("a saved receipt", () => {
  it("waits until its key is final on the chain, and then answers all six questions with yes", async () => {
    expect(await on.answers(await first())).toBe(ALL)
    const { rows } = await sql<{ state: string; n: number }>`
      select state, count(*)::int as n from payouts where kind = 'anchor' group by 1`.execute(rig.service.ctx.db)
    expect(rows).toEqual([{ state: "final", n: 2 }])
    // They move nobody's money, so the books are as before, and no merchant sees them among what left.
    const { ctx } = rig.service
    expect(await checkConsistency(ctx, rig.network.chainId)).toEqual([])
    await rig.compareLogs()
    expect(await ctx.db.selectFrom("wallets").select("status").execute()).toEqual([{ status: "active" }])
    expect(await on.ownCallsShown()).toEqual([])
  })

  it("answers only what needs no chain where no node is named, and that is not enough", async () => {
    expect(await on.answers(await first(), new Map())).toBe("y-y--y-")
  })

  it("is refused with any byte of it changed, and the question that refuses it is the one about that byte", async () => {
    const saved = await first()
    const refused = async (changed: SavedReceipt) => on.answers(changed, new Map())
    // Every byte of what is sealed: it does not open, and is not what its batch has.
    for (let i = 0; i < saved.jwe.length; i++)
      expect(await refused({ ...saved, jwe: flipped(saved.jwe, i) }), `jwe ${i}`).toBe("n-n----")
    for (let i = 0; i < saved.key.length; i++)
      expect(await refused({ ...saved, key: flipped(saved.key, i) }), `key ${i}`).toBe("n-y----")
    for (let i = 2; i < saved.root.length; i++)
      expect(await refused({ ...saved, root: flipped(saved.root, i) }), `root ${i}`).toBe("y-n--y-")
    for (const [k, hash] of saved.path.entries())
      for (let i = 0; i < hash.length; i++) {
        const path = saved.path.with(k, flipped(hash, i))
        expect(await refused({ ...saved, path }), `path ${k} ${i}`).toBe("y-n--y-")
      }
    for (const changed of [{ offset: saved.offset + 256 }, { size: saved.size + 4096 }, { path: saved.path.slice(1) }])
      expect(await refused({ ...saved, ...changed })).toBe("y-n--y-")
    const [fact] = saved.facts
    if (!fact) throw new Error("no fact")
    for (const [name, text] of Object.entries(fact))
      for (let i = 0; i < text.length; i++) {
        const facts = saved.facts.with(0, { ...fact, [name]: flipped(text, i) })
        expect((await refused({ ...saved, facts }))[0], `fact ${name} ${i}`).toBe("n")
      }
    const [terms] = saved.terms
    if (!terms) throw new Error("no terms")
    for (const name of ["factory", "salt", "owner", "approver", "payeesHash", "openAfter"] as const)
      for (let i = 0; i < terms[name].length; i++) {
        const changed = { ...saved, terms: [{ ...terms, [name]: flipped(terms[name], i) }] }
        expect(await refused(changed), `${name} ${i}`).toBe("y-y--n-")
      }
  })

  it("is refused where the chain says another thing at the blocks that it names", async () => {
    const saved = await first()
    expect(await on.answers({ ...saved, keyBlock: (saved.keyBlock ?? 0) + 1 })).toBe("ynyyyy-")
    expect(await on.answers({ ...saved, anchorBlock: (saved.anchorBlock ?? 0) + 1 })).toBe("yyynyy-")
  })

  it("needs no block: without them the chain is searched", async () => {
    expect(await on.answers({ ...(await first()), keyBlock: null, anchorBlock: null })).toBe(ALL)
  })

  it("verifies from its link and its batch's bytes as well", async () => {
    const { key, root, offset, jwe } = await first()
    const batch = await readBatch(rig.service.ctx, root as Hash)
    const held = readLinked(batch ?? new Uint8Array(), { key, root, offset, length: jwe.length })
    expect(await on.answers(held)).toBe(ALL)
    const other = (batch ?? new Uint8Array()).slice()
    other[offset + 100] = (other[offset + 100] ?? 0) ^ 1
    expect(() => readLinked(other, { key, root, offset, length: jwe.length })).toThrow("another root")
  })
})

/** A text with one character changed to another of its kind. */
function flipped(text: string, i: number): string {
  const was = text[i] ?? ""
  return `${text.slice(0, i)}${/[0-9]/.test(was) ? `${(Number(was) + 1) % 10}` : was === "a" ? "b" : "a"}${text.slice(i + 1)}`
}

describe("a stranger", () => {
  it("who forges a receipt of a real transfer is refused in line 2, though its root is anchored for a factory of theirs", async () => {
    const saved = await first()
    const { body } = await readReceipt(await open(saved.jwe, saved.key))
    const pair = generateKeyPairSync("ed25519")
    const { crv, kty, x } = pair.publicKey.export({ format: "jwk" }) as unknown as PublicKey
    const publicKey = { crv, kty, x }
    const id = await thumbprint(publicKey)
    const made = makeSealed({ ...body, facts: saved.facts.map(factHash) }, saved.facts, {
      id,
      publicKey,
      key: pair.privateKey,
    })
    const bytes = padded(made.jwe)
    const tree = treeOf(bytes)
    const root = rootOf(tree) as Hash
    const forged: SavedReceipt = {
      ...saved,
      jwe: made.jwe,
      key: made.kept.key,
      root,
      offset: 0,
      size: bytes.length,
      path: pathOf(tree, 0, bytes.length),
      keyBlock: null,
      anchorBlock: null,
    }
    const { client, accounts } = rig.anvil
    const stranger = accounts[7]
    const send = (functionName: "key" | "anchor", factory: `0x${string}`) => {
      const thumb = `0x${Buffer.from(id, "base64url").toString("hex")}` as const
      const data =
        functionName === "key"
          ? encodeFunctionData({ abi: receiptAnchorAbi, functionName, args: [factory, thumb] })
          : encodeFunctionData({ abi: receiptAnchorAbi, functionName, args: [factory, `0x${"0".repeat(64)}`, [root]] })
      return client.sendTransaction({ account: stranger, to: anchorDeployment.address, data, gas: 100_000n })
    }
    for (const name of ["key", "anchor"] as const) {
      const { status } = await client.waitForTransactionReceipt({ hash: await send(name, rig.network.depositFactory) })
      expect(status).toBe("reverted")
    }
    expect(await on.answers(forged)).toBe("ynynyy-")
  })
})

describe("a merchant's file", () => {
  it("shows that nothing was left out", async () => {
    expect(await on.answers(await on.exported(merchantId))).toBe("yyyyyyy")
  })

  it("shows each receipt that is missing, twice there or in another place, and a missing end", async () => {
    const lines = (await on.exported(merchantId)).trimEnd().split("\n")
    expect(lines).toHaveLength(6)
    const last = lines.length - 1
    for (let i = 0; i < lines.length; i++) expect(await on.answers(lines.toSpliced(i, 1).join("\n"))).toBe("yyyyyyn")
    expect(await on.answers(lines.toSpliced(1, 0, lines[0] ?? "").join("\n"))).toBe("yyyyyyn")
    expect(await on.answers([...lines.slice(0, 2).toReversed(), ...lines.slice(2)].join("\n"))).toBe("yyyyyyn")
    expect(await on.answers([...lines.slice(0, last - 1), lines[last]].join("\n"))).toBe("yyyyyyn")
  })

  it("says that one was erased, and still that none is left out", async () => {
    const { db } = rig.service.ctx
    const { rows } = await sql<{ sealed: string }>`select sealed from receipts where seq = 3`.execute(db)
    await sql`update receipts set sealed = null where seq = 3`.execute(db)
    const text = await on.exported(merchantId)
    await sql`update receipts set sealed = ${rows[0]?.sealed} where seq = 3`.execute(db)
    expect(await on.answers(text)).toBe("yyyyyyy")
    expect(text).toContain('"erased":true')
  })
})

const cli = new URL("../../../../verify/src/cli.ts", import.meta.url).pathname
/** Runs the command with this on its standard input. */
function run(args: string[], input = ""): { code: number; text: string } {
  try {
    return { code: 0, text: execFileSync(process.execPath, [cli, ...args], { encoding: "utf8", stdio: "pipe", input }) }
  } catch (error) {
    const { status, stdout, stderr } = error as { status: number; stdout: string; stderr: string }
    return { code: status, text: `${stdout}${stderr}` }
  }
}

it("the command verifies it when service, database and store are gone, and refuses what is not asked for or not there", async () => {
  const saved = join(dataDir, "receipt-1.json")
  const file = join(dataDir, "receipts.ndjson")
  writeFileSync(saved, JSON.stringify(await first(), null, 2))
  writeFileSync(file, await on.exported(merchantId))
  // Only the chain is there from here on.
  const rpc = ["--rpc", rig.anvil.rpcUrl]
  const one = run([saved, ...rpc])
  expect([one.code, one.text.match(/^✔/gm)?.length]).toEqual([0, 6])
  expect(one.text).toContain(
    "· 7 It follows the merchant's receipt before it: not checked: it needs the merchant's file",
  )
  const all = run([file, ...rpc])
  expect([all.code, all.text.match(/^✔/gm)?.length]).toEqual([0, 7])
  expect(run([saved]).code).toBe(1)
  expect(run([saved, "--ask", "1,3,6"]).code).toBe(0)
  expect(run([saved, "--ask", "8"]).code).toBe(2)
  expect(run([join(dataDir, "none.json")]).code).toBe(1)
})

it("the command takes a key from a file and from its input, where no other process reads it", async () => {
  const { key, root, offset, jwe } = await first()
  const batch = join(dataDir, "batch")
  const keyFile = join(dataDir, "key.txt")
  writeFileSync(batch, (await readBatch(rig.service.ctx, root as Hash)) ?? "")
  writeFileSync(keyFile, `${key}\n`)
  const place = `0g://${root}?o=${offset}&l=${jwe.length}`
  const link = `https://pay.example/receipt/1#k=${key}&root=${root}&o=${offset}&l=${jwe.length}`
  const more = ["--batch", batch, "--ask", "1,3,6"]
  expect(run([place, "--key-file", keyFile, ...more]).code).toBe(0)
  expect(run([place, "--key-file", "-", ...more], `${key}\n`).code).toBe(0)
  expect(run(["-", ...more], `${link}\n`).code).toBe(0)
  expect(run(["-", "--key-file", keyFile, ...more], place).code).toBe(0)
  for (const wrong of [
    ["-", "--key-file", "-", ...more],
    [place, "--key", key, "--key-file", keyFile, ...more],
    [place, ...more],
  ])
    expect(run(wrong).code).toBe(2)
})
