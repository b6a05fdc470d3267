// Nobody but holders reads a receipt: nothing that a payer or merchant wrote, nor its hash, nor a key is anywhere else.
import { createHash, randomBytes } from "node:crypto"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import fc from "fast-check"
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { canonical, open, readReceipt, type SavedReceipt } from "../../../../verify/src/format.ts"
import { type ExceptionsRig, startExceptionsRig } from "../../../test/exceptions.ts"
import { inTransaction } from "../../platform/context.ts"
import { openLog } from "../../platform/log.ts"
import { receiptRound } from "./make-batches.ts"
import { savedAbout } from "./read-receipts.ts"

let rig: ExceptionsRig
const dataDir = mkdtempSync(join(tmpdir(), "receipts-"))
const receipts = { batchMs: 1_000, anchorMs: undefined }
beforeAll(async () => {
  rig = await startExceptionsRig({ dataDir, receipts })
  await rig.empty()
})
afterAll(async () => {
  await rig?.stop()
  rmSync(dataDir, { recursive: true, force: true })
})

/** Text that somebody may write, with a mark that occurs nowhere else. */
const written = fc.string({ maxLength: 30, unit: "grapheme" }).map(text => `${text.replaceAll("\0", "")} ${mark()}`)
const mark = () => `mark${randomBytes(9).toString("hex")}`
const checkout = fc.record({
  description: written,
  metadata: fc.dictionary(
    fc.stringMatching(/^[a-z]{1,8}$/).map(name => `${name}${mark()}`),
    written,
    { maxKeys: 5 },
  ),
  name: written,
  email: fc.constant(0).map(() => `${mark()}@example.com`),
})

const as = { as: "shop" }
const files = (): Buffer =>
  Buffer.concat(
    readdirSync(join(dataDir, "receipts"), { recursive: true, withFileTypes: true })
      .filter(each => each.isFile())
      .map(each => readFileSync(join(each.parentPath, each.name))),
  )

/** Pays a checkout with these texts, and returns the file that its payer can keep. */
async function paid(given: { description: string; metadata: object; name: string; email: string }, log: string[]) {
  const { service } = rig
  const payerFields = ["name", "email"]
  const { description, metadata, name, email } = given
  const made = await service.call(
    "POST",
    "/api/console/checkouts",
    { amount: "1", description, metadata, payerFields },
    as,
  )
  expect(made.status).toBe(201)
  const { id, payTo } = made.body
  const answers = { sessionId: id, payerInfo: { name, email } }
  expect((await service.call("POST", "/api/pay/payer-info", answers)).status).toBe(200)
  await rig.pay(payTo, "1")
  await rig.rounds(2)
  const stream = { write: (line: string) => void log.push(line) }
  const ctx = { ...service.ctx, log: openLog("trace", stream as never) }
  await ctx.db.updateTable("receipt_rounds").set({ run_at: ctx.now() }).execute()
  await receiptRound(ctx, rig.network)
  const payment = ctx.db.selectFrom("payments").select("id").where("resource_id", "=", id)
  const [saved] = await savedAbout(ctx, [(await payment.executeTakeFirstOrThrow()).id])
  if (!saved || "erased" in saved.file) throw new Error("no receipt")
  return saved.file
}

/** A text as it could be stored: itself, and its hashes without a salt. */
function tracesOf(name: string, value: string): string[] {
  const of = [value, canonical(value), canonical([name, value])]
  const hashes = of.flatMap(text =>
    (["hex", "base64url"] as const).map(encoding => createHash("sha256").update(text).digest(encoding)),
  )
  return [...hashes, ...(value.match(/mark[0-9a-f]{18}/g) ?? [])]
}

it("stored bytes, lists, events and the log have no mark, no hash of it without its salt, and no key", async () => {
  const log: string[] = []
  const held: SavedReceipt[] = []
  await fc.assert(
    fc.asyncProperty(checkout, async given => {
      const file = await paid(given, log)
      held.push(file)
      const values = new Map(file.facts.map(({ name, value }) => [name, value]))
      // It is all there for the holder.
      expect(values.get("description")).toBe(given.description.trim() === "" ? undefined : given.description)
      expect(values.get("answer.name")).toBe(given.name)
      for (const [name, value] of Object.entries(given.metadata)) expect(values.get(`metadata.${name}`)).toBe(value)
    }),
    { numRuns: 5 },
  )
  const { db } = rig.service.ctx
  const list = await rig.service.call("GET", "/api/console/receipts", undefined, as)
  const { rows: events } = await sql<{ body: string }>`select body from events`.execute(db)
  const { rows } = await sql<{ row: string }>`select to_jsonb(r)::text as row from receipts r`.execute(db)
  const { rows: batches } = await sql<{ row: string }>`select to_jsonb(b)::text as row from receipt_batches b`.execute(
    db,
  )
  const stored = files().toString("latin1") + [...rows, ...batches].map(({ row }) => row).join("")
  const shown = JSON.stringify(list.body) + log.join("")
  const sent = events.map(({ body }) => body).join("")
  expect(held.length).toBeGreaterThanOrEqual(5)
  for (const { key, jwe, facts } of held) {
    expect(stored.includes(jwe)).toBe(true)
    for (const text of [stored, shown, sent]) expect(text.includes(key)).toBe(false)
    for (const { name, value, salt } of facts) {
      for (const text of [stored, shown, sent]) expect(text.includes(salt)).toBe(false)
      for (const trace of tracesOf(name, value)) {
        expect(stored.includes(trace)).toBe(false)
        expect(shown.includes(trace), trace).toBe(false)
      }
    }
    // What is signed has only salted hashes, though its holder could read more.
    const { body } = await readReceipt(await open(jwe, key))
    for (const { name, value } of facts)
      for (const trace of tracesOf(name, value)) expect(JSON.stringify(body).includes(trace)).toBe(false)
  }
})

it("the public file has neither metadata nor answers, and a second payer's receipt never had them", async () => {
  const log: string[] = []
  const { service } = rig
  const file = await paid({ description: "x", metadata: { note: "VIP" }, name: "Ann", email: "ann@example.com" }, log)
  expect(file.facts.map(({ name }) => name)).toEqual(expect.arrayContaining(["metadata.note", "answer.name"]))
  const { rows } = await sql<{ session: string }>`select resource_id as session from receipts
    where root = ${file.root} and byte_offset = ${file.offset}`.execute(service.ctx.db)
  const shown = await service.call("GET", `/receipt/${rows[0]?.session}/file`)
  expect(shown).toMatchObject({ status: 200, body: { root: file.root, key: file.key } })
  expect(shown.body.facts.map(({ name }: { name: string }) => name).sort()).toEqual(["description", "merchant"])
  // As where a stranger pays the same address, and the merchant accepts it.
  const undone = new Error("undone")
  const accepted = inTransaction(service.ctx, async ({ db }) => {
    await sql`update payments set beside = true, accepted_at = updated_at, amount = amount + 1
      where resource_id = ${rows[0]?.session}`.execute(db)
    await sql`set constraints all immediate`.execute(db)
    const drafts = await sql`select body -> 'what' as what from receipts
      where resource_id = ${rows[0]?.session} and root is null and type = 'payment'`.execute(db)
    expect(drafts.rows).toEqual([{ what: null }])
    throw undone
  })
  await expect(accepted).rejects.toBe(undone)
})

it("an erasure while a batch is signed destroys its key", async () => {
  const { db } = rig.service.ctx
  // Between the round's read and its write.
  await sql`create function erase_meanwhile() returns trigger language plpgsql as $$ begin
    update receipts set body = body - 'what' where root is null; return new; end $$`.execute(db)
  await sql`create trigger erase_meanwhile before insert on receipt_batches for each row execute function erase_meanwhile()`.execute(
    db,
  )
  try {
    const given = { description: "x", metadata: {}, name: "Ann", email: "ann@example.com" }
    await expect(paid(given, [])).rejects.toThrow("no receipt")
  } finally {
    await sql`drop trigger erase_meanwhile on receipt_batches`.execute(db)
    await sql`drop function erase_meanwhile()`.execute(db)
  }
  const { rows } = await sql`select seq from receipts where root is not null and sealed is null`.execute(db)
  expect(rows).toHaveLength(1)
})

it("an erased customer's receipt keeps its place, and its key is gone", async () => {
  const log: string[] = []
  const file = await paid({ description: "x", metadata: {}, name: "Ann", email: "ann@example.com" }, log)
  const { service } = rig
  const erased = await service.call(
    "POST",
    "/api/console/erasures",
    { customerEmail: "ann@example.com", pendingDeliveries: "drop" },
    as,
  )
  expect(erased.status).toBe(200)
  const { rows } = await sql<{ n: number; sealed: string | null }>`
    select seq as n, sealed from receipts where byte_offset = ${file.offset} and root = ${file.root}`.execute(
    service.ctx.db,
  )
  expect(rows).toMatchObject([{ sealed: null }])
  // Whoever kept the file can still read it.
  expect((await readReceipt(await open(file.jwe, file.key))).body.type).toBe("payment")
})
