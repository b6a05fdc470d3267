/**
 * Who makes the request that runs now, as its credential says, for the audit log. It follows a request through everything that it
 * awaits, and each transaction that it begins hands it to the database, where triggers write the entries.
 */
import { AsyncLocalStorage } from "node:async_hooks"

/** Whoever acts; never a secret. What a caller could write into a header is `userAgent` and `requestId` alone. */
export interface Actor {
  /** `console`: a console token. `subscriber`: a wallet that signed in. `operator`: a command on the service's own machine. */
  kind: "console" | "api_key" | "subscriber" | "operator"
  /** The subject of a token, the id of a key, a wallet (CAIP-10), or the name of a Unix user. */
  id: string
  /** Who issued the token. */
  issuer?: string
  /** The client's IP address, as far as `TRUSTED_PROXIES` lets it be known. */
  address?: string | undefined
  userAgent?: string | undefined
  /** Method and pattern of the route, or the command. */
  route: string
  requestId?: string
}

const present = new AsyncLocalStorage<Actor | undefined>()

/** Runs something on behalf of an actor, or of nobody: what it awaits, and what it starts, belongs to it too. */
export const withActor = <T>(actor: Actor | undefined, run: () => T): T =>
  actor === present.getStore() ? run() : present.run(actor, run)

/**
 * The statement that says in a transaction who acts, undefined where nobody does. In base64, so that nothing in it can be read as SQL,
 * and with every character of a name.
 */
export function actorStatement(): string | undefined {
  const actor = present.getStore()
  // Not `set local`: pg_stat_statements keeps each text of it apart, and would keep who acted.
  return actor && `select set_config('sluice.actor', '${Buffer.from(JSON.stringify(actor)).toString("base64")}', true)`
}
