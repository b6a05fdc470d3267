/**
 * A careless service, as triggers: it forgets that a capture was answered, which nobody notices until a process is killed in between; it
 * forgets that its merchant was notified of a payment; and once something is reserved, no reorg removes it.
 */
import { sql } from "kysely"
import type { Db } from "../../src/platform/db/open.ts"
import type { Deal, Play, Story } from "./escrow-play.ts"

/** Whom each carelessness meets: who captures a part, who is paid, and whose reservation goes for good. */
export const carelessStories: Story[] = ["reclaimed", "automatic", "gone"]

/** What must be found of it. */
export const caught = [
  /^reclaimed .*nobody asked for a capture that was made/,
  /^automatic .*completed was sent twice/,
  /^gone .*its row says reserve [1-9]\d*, the chain 0/,
]

/** What must be found of altered rows. */
export const caughtOfTampered = [
  /^captured in parts .*nobody asked for a capture that was made/,
  /^captured in parts .*completed was sent twice/,
  /^forgotten .*its row says reserve [1-9]/,
]

/** Leaves the rows as a careless service would: a capture that nobody asked for, a second completion, and an amount that is not the chain's. */
export async function tamperWith(db: Db, deals: readonly Deal[]): Promise<void> {
  const idOf = (story: Story) => deals.find(deal => deal.story === story)?.id ?? ""
  const parts = idOf("captured in parts")
  await sql`insert into payouts select (jsonb_populate_record(i, jsonb_build_object('id', gen_random_uuid(), 'source_key', 'again',
      'nonce', 1000000))).*
    from payouts i where i.id = (select id from payouts where escrow_id = ${parts} and kind = 'capture' and state = 'final'
      order by id limit 1)`.execute(db)
  await sql`insert into events select (jsonb_populate_record(e, jsonb_build_object('id', 'evt_again', 'dedupe_key', 'again',
      'body', regexp_replace(e.body, '"sequence":[0-9]+', '"sequence":1000')))).*
    from events e where e.type = 'checkout.session.completed' and e.body like ${`%"sessionId":"${parts}"%`}
    order by e.id limit 1`.execute(db)
  await sql`update escrows set authorized = authorized + 1 where session_id = ${idOf("forgotten")}`.execute(db)
}

const triggers = {
  idempotency_keys: `
    if new.answer is not null and new.route like '%/capture' then
      new.answer := null;
      new.status := null;
      new.claim_id := old.claim_id;
      new.lease_until := clock_timestamp() - interval '1 second';
    end if;`,
  checkout_sessions: `
    new.notified_paid := false;
    if old.status = 'authorized' and new.status in ('verifying', 'pending') then
      new.status := old.status;
    end if;`,
  escrows: `
    if new.authorized < old.authorized then
      old.run_at := new.run_at;
      return old;
    end if;`,
}

/** Makes the service of a database careless. */
export async function beCareless(db: Db): Promise<void> {
  for (const [table, body] of Object.entries(triggers)) {
    await sql
      .raw(
        `create function careless_${table}() returns trigger language plpgsql as $$ begin ${body} return new; end $$`,
      )
      .execute(db)
    await sql
      .raw(`create trigger careless before update on ${table} for each row execute function careless_${table}()`)
      .execute(db)
  }
}

/** Waits until each carelessness has done what it does. */
export async function waitCareless({ stage, signal }: Play, deals: readonly Deal[]): Promise<void> {
  const [captured, paid, gone] = deals
  for (;;) {
    const { rows } = await sql<{ done: boolean }>`select
      (select count(*) > 1 from payouts where escrow_id = ${captured?.id} and kind = 'capture' and state = 'final')
      and (select count(*) > 1 from events where type = 'checkout.session.completed' and body like ${`%${paid?.id}%`})
      and exists (select from payouts where escrow_id = ${gone?.id} and kind = 'reserve' and state = 'reverted') as done`.execute(
      stage.rig.service.ctx.db,
    )
    if (rows[0]?.done) return
    if (signal.aborted) throw new Error("never: the service was careless")
    await new Promise(resolve => setTimeout(resolve, 100))
  }
}
