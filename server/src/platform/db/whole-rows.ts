/**
 * The columns of rows that named statements read whole. A named `select *` fails after a migration that adds a column
 * (`pool.ts`), whereas these lists do not compile while a column is missing.
 */
import { type RawBuilder, sql } from "kysely"
import type { Database, Row } from "./schema.ts"

const tables = {
  transfers: {
    id: true,
    chain_id: true,
    tx_hash: true,
    token: true,
    to_address: true,
    k: true,
    deposit_id: true,
    from_address: true,
    value: true,
    block_number: true,
    block_hash: true,
    log_index: true,
    block_time: true,
    state: true,
    single_source: true,
    suspect_at: true,
    run_at: true,
    created_at: true,
    applied: true,
    merchant_id: true,
    reorged_at: true,
  },
  payments: {
    id: true,
    merchant_id: true,
    resource_id: true,
    chain_id: true,
    payer: true,
    amount: true,
    tx_hash: true,
    status: true,
    exception: true,
    created_at: true,
    updated_at: true,
    sweep_at: true,
    notify_by: true,
    token: true,
    deposit_id: true,
    accepted_at: true,
    beside: true,
    returned_at: true,
    returned_to: true,
    notified_paid: true,
    agent: true,
    reopened: true,
    event_sequence: true,
    traceparent: true,
  },
  deposits: {
    id: true,
    chain_id: true,
    address: true,
    factory: true,
    salt: true,
    owner: true,
    approver: true,
    older_factory: true,
    payees_hash: true,
    recipient_set_id: true,
    open_after_s: true,
    resource_id: true,
    created_at: true,
    watched: true,
    watched_until: true,
    watched_number: true,
    dormant_since: true,
    check_at: true,
    merchant_id: true,
    balanced_number: true,
  },
  checkout_sessions: {
    id: true,
    merchant_id: true,
    chain_id: true,
    amount: true,
    currency: true,
    description: true,
    redirect_url: true,
    callback_url: true,
    link_id: true,
    product_id: true,
    customer_email: true,
    payer_fields: true,
    payer_info: true,
    metadata: true,
    status: true,
    capture: true,
    exception: true,
    received: true,
    message: true,
    split_id: true,
    recipient_set_id: true,
    payer: true,
    tx_hash: true,
    confirmed_at: true,
    expires_at: true,
    run_at: true,
    agent: true,
    agent_caller: true,
    created_at: true,
    updated_at: true,
    notified_paid: true,
    event_sequence: true,
    traceparent: true,
    erased_at: true,
  },
  surpluses: {
    payment_id: true,
    transfer_id: true,
    deposit_id: true,
    token: true,
    amount: true,
    state: true,
    returned_at: true,
    returned_to: true,
  },
} satisfies { [T in keyof Database]?: Record<keyof Row<T>, true> }

type Listed = keyof typeof tables

/** All columns of a table. */
export const columnsOf = <T extends Listed>(table: T): (keyof Row<T>)[] =>
  Object.keys(tables[table]) as (keyof Row<T>)[]

/**
 * SQL: all columns of a table's row with this alias. They are one piece of text, because Kysely takes a microsecond for
 * each part of a statement.
 */
export const allColumns = (alias: string, table: Listed): RawBuilder<unknown> =>
  sql.raw(
    Object.keys(tables[table])
      .map(name => `${alias}.${name}`)
      .join(", "),
  )
