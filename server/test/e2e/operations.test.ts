// The commands of docs/operations.md that need a Postgres: what they make is whole.
import { execFile } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { sql } from "kysely"
import pg from "pg"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { openPostgres } from "../../src/db/open.ts"
import { postgresBinaries, startPostgres } from "../postgres.ts"
import { root } from "./program.ts"

const text = readFileSync(join(root, "docs/operations.md"), "utf8")
const blocks = [...text.matchAll(/^ *```sh(.*)\n([\s\S]*?)^ *```$/gm)].map(match => ({
  kind: match[1]?.trim(),
  text: match[2] ?? "",
}))

let postgres: Awaited<ReturnType<typeof startPostgres>>
const dir = mkdtempSync(join(tmpdir(), "sluice-operations-"))

describe.runIf(postgresBinaries())("docs/operations.md", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
  })
  afterAll(async () => {
    await postgres?.stop()
    rmSync(dir, { recursive: true })
  })

  it("has commands of kinds that a test runs, and a copy of a folder", () => {
    expect(blocks.map(block => block.kind)).toEqual([
      "postgres",
      "embedded",
      "postgres",
      "postgres",
      "recover",
      "recover",
    ])
    expect(blocks[1]?.text).toBe('cp -a "$DATA_DIR" backup\n')
  })

  it("dumps, restores and exports the terms of all deposits", async () => {
    const admin = new pg.Client({ connectionString: postgres.url })
    await admin.connect()
    for (const name of ["first", "second"]) await admin.query(`create database ${name}`)
    await admin.end()
    const [from, to] = ["first", "second"].map(
      name => Object.assign(new URL(postgres.url), { pathname: `/${name}` }).href,
    )
    const first = await openPostgres(from ?? "", () => {})
    await sql`insert into merchants values ('mer_1', 'i', 's', 'n', null, now())`.execute(first.db)
    await sql`insert into paywalls (id, merchant_id, chain_id, name, price, currency, content_type, pricing_model, active,
        created_at, updated_at) values ('pw_1', 'mer_1', 84532, 'n', 1, 'USDC', 'content', 'one_time', true, now(), now())`.execute(
      first.db,
    )
    const [address, salt] = [`0x${"1".repeat(40)}`, `0x${"5".repeat(64)}`]
    await sql`insert into deposits (chain_id, address, factory, salt, owner, open_after_s, paywall_id, created_at, hot_until)
      values (84532, ${address}, ${address}, ${salt}, ${address}, 1893456000, 'pw_1', now(), now())`.execute(first.db)
    const PATH = `${postgresBinaries()}:${process.env.PATH}`
    const env = { PATH, DATABASE_URL: from ?? "", RESTORED_URL: to ?? "" }
    for (const { text } of blocks.filter(block => block.kind === "postgres"))
      await promisify(execFile)("bash", ["-euo", "pipefail", "-c", text], { cwd: dir, env })
    await first.close()
    // The copy opens, is at this version, and has the terms.
    const second = await openPostgres(to ?? "", () => {})
    const { rows } = await sql<{ salt: string }>`select salt from deposits`.execute(second.db)
    expect(rows).toEqual([{ salt }])
    await second.close()
    const [head, line] = readFileSync(join(dir, "deposits.csv"), "utf8").trim().split("\n")
    expect(head).toBe("address,chainId,factory,salt,owner,openAfter")
    expect(line).toBe(`${address},84532,${address},${salt},${address},1893456000`)
  })
})
