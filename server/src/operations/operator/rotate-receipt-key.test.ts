// A new key for receipts: no receipt waits for it, each key is registered before it signs and revoked when all that it signed is
// written to the chain, and the merchant's file still proves itself.
import { generateKeyPairSync } from "node:crypto"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { toEventSelector } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type HeadBody, type HeadLine, type PublicKey, readSigned, thumbprint } from "../../../../verify/src/format.ts"
import { openNode } from "../../../../verify/src/rpc.ts"
import { type Operator, openOperator } from "../../../test/operator.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { receiptsOn } from "../../../test/receipts.ts"
import { signText } from "../../ledger/receipts/receipt.ts"
import { openKey } from "../../ledger/receipts/use-receipt-keys.ts"
import { anchorDeployment } from "../../platform/chain/receipt-anchor.ts"
import type { Row } from "../../platform/db/schema.ts"
import { seal } from "../../platform/secrets.ts"

const ALL = "yyyyyyy"
let rig: PayoutRig
let on: ReturnType<typeof receiptsOn>
let operator: Operator
const dataDir = mkdtempSync(join(tmpdir(), "receipts-"))
beforeAll(async () => {
  rig = await startPayoutRig({ dataDir, receipts: { batchMs: 1_000, anchorMs: 1_000 } })
  on = receiptsOn(rig)
  operator = openOperator(rig)
})
afterAll(async () => {
  await operator?.stop()
  await rig?.stop()
  rmSync(dataDir, { recursive: true, force: true })
})
beforeEach(() => rig.empty())

const db = () => rig.service.ctx.db
const rotate = () => operator.ask("/rotate-receipt-key", { network: "base-sepolia", reason: "a year is over" })
const keys = () => db().selectFrom("receipt_keys").selectAll().orderBy("created_at").execute()
const signers = async () =>
  (await db().selectFrom("receipt_batches").select("key_id").orderBy("n").execute()).map(({ key_id }) => key_id)
/** Which keys the chain calls revoked. */
async function revoked(): Promise<string[]> {
  const node = openNode(rig.anvil.rpcUrl)
  const newest = Number((await node.block("latest"))?.number)
  const logs = await node.logs(anchorDeployment.address, [TOPIC], 0, newest)
  return logs.map(({ topics }) => Buffer.from((topics[2] ?? "0x").slice(2), "hex").toString("base64url"))
}
/** Of `Revoked(address,bytes32)`. */
const TOPIC = toEventSelector("Revoked(address,bytes32)")

it("signs once it is registered; the key before it signs meanwhile, and is revoked when all it signed is written", async () => {
  const shop = await rig.sell()
  await rig.paid(shop, 1_000_000n)
  await on.finish()
  expect((await rotate()).status).toBe(200)
  const [first, second] = (await keys()).map(({ id }) => id)
  // The new key has no call yet: what is due is signed by the one before it, and does not wait.
  await rig.paid(shop, 1_000_001n)
  await on.round()
  expect(await signers()).toEqual([first, first])
  const early = await rotate()
  expect([early.status, early.body.message]).toEqual([
    409,
    expect.stringContaining("is not registered on the chain yet"),
  ])
  await on.carryOut()
  rig.service.advance(2_000)
  await rig.paid(shop, 1_000_002n)
  await on.finish()
  expect(await signers()).toEqual([first, first, second])
  await on.finish()
  await on.finish()
  expect(await revoked()).toEqual([first])
  expect((await keys()).map(({ revoke_id }) => revoke_id !== null)).toEqual([true, false])
  expect(await on.answers(await on.exported(shop.deposit.merchant_id))).toBe(ALL)
  expect(await on.ownCallsShown()).toEqual([])
  expect((await operator.actions()).map(({ action, reason }) => [action, reason])).toEqual([
    ["rotate receipt key", "a year is over"],
  ])
})

describe("the end of a merchant's file", () => {
  /** Two receipts by the first key, which is revoked. The second is registered and has signed none. */
  async function replaced() {
    const shop = await rig.sell()
    const { merchant_id } = shop.deposit
    await rig.paid(shop, 1_000_000n)
    await on.finish()
    await rotate()
    await rig.paid(shop, 1_000_001n)
    await on.round()
    await on.carryOut()
    const before = await on.exported(merchant_id)
    rig.service.advance(2_000)
    for (let n = 0; n < 3; n++) await on.finish()
    const [old, young] = await keys()
    if (!old || !young) throw new Error("a key is missing")
    expect(await revoked()).toContain(old.id)
    return { shop, merchant_id, before, old, young }
  }
  const HOUR = 3_600_000
  const after = (ms: number) => new Date(rig.service.ctx.now().getTime() + ms).toISOString()
  const linesOf = (text: string) => text.trim().split("\n")
  /** The file with these of its receipts, and an end of this key. */
  function ended(text: string, [from, to]: [number, number], key: Row<"receipt_keys">, at: string): string {
    const lines = linesOf(text)
    const { jws, keyBlock } = JSON.parse(lines.at(-1) ?? "") as HeadLine
    const body = JSON.parse(Buffer.from(jws.split(".")[1] ?? "", "base64url").toString()) as HeadBody
    const signed = signText({ ...body, first: from, last: to, at }, openKey(rig.service.ctx, key))
    return [...lines.slice(from - 1, to), JSON.stringify({ sluiceHead: 1, jws: signed, keyBlock })].join("\n")
  }

  it("is signed by a key that is not revoked, though it has signed none of the receipts", async () => {
    const { merchant_id, before, young } = await replaced()
    const text = await on.exported(merchant_id)
    expect((await readSigned(JSON.parse(linesOf(text).at(-1) ?? "").jws)).kid).toBe(young.id)
    expect(await on.answers(text)).toBe(ALL)
    // Without the block in the line, the chain is searched.
    expect(await on.answers(text.replace(/,"keyBlock":\d+\}\s*$/, "}"))).toBe(ALL)
    // What the key signed before stays valid.
    expect(await on.answers(before)).toBe(ALL)
  })

  it("is not believed of a key that had been revoked, nor with a time that its receipts contradict", async () => {
    const { shop, merchant_id, old, young } = await replaced()
    for (const amount of [1_000_002n, 1_000_003n]) await rig.paid(shop, amount)
    await on.finish()
    await on.finish()
    const text = await on.exported(merchant_id)
    expect(await on.answers(text)).toBe(ALL)
    const refused = ALL.replace(/.$/, "n")
    for (const part of [
      [1, 1],
      [1, 2],
      [1, 3],
      [3, 3],
    ] as [number, number][])
      expect(await on.answers(ended(text, part, old, after(HOUR))), `${part}`).toBe(refused)
    for (const at of [after(-HOUR), "", "never"]) {
      expect(await on.answers(ended(text, [1, 2], old, at)), at).toBe(refused)
      expect(await on.answers(ended(text, [1, 4], young, at)), at).toBe(refused)
    }
    expect(await on.answers(ended(text, [1, 4], young, after(HOUR)))).toBe(ALL)
    // No place that the file names hides the revocation.
    const hidden = ended(text, [1, 2], old, after(HOUR)).replaceAll(/"keyBlock":\d+/g, '"keyBlock":1')
    expect((await on.answers(hidden)).at(-1)).toBe("n")
  })

  it("is not believed of a stranger's key, and not checked where no node says whether it is revoked", async () => {
    const { merchant_id, young } = await replaced()
    const text = await on.exported(merchant_id)
    const made = generateKeyPairSync("ed25519")
    const { crv, kty, x } = made.publicKey.export({ format: "jwk" }) as unknown as PublicKey
    const publicKey = { crv, kty, x }
    const { ctx } = rig.service
    const sealed = seal(
      ctx.settings.secretKeys,
      "receipt-key",
      await thumbprint(publicKey),
      JSON.stringify(made.privateKey.export({ format: "jwk" })),
    )
    const stranger = { ...young, id: await thumbprint(publicKey), public_key: publicKey, sealed }
    expect(await on.answers(ended(text, [1, 2], stranger, after(0)))).toBe(ALL.replace(/.$/, "n"))
    expect((await on.answers(text, new Map())).at(-1)).toBe("-")
  })
})

it("is refused of a network that is not served", async () => {
  expect((await operator.ask("/rotate-receipt-key", { network: "base", reason: "r" })).status).toBe(409)
})
