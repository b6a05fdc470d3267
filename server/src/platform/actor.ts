/**
 * The actor of the current request for the audit log, determined by the request's credential. The actor follows a
 * request through everything that it awaits. Each transaction that the request starts passes the actor to the database,
 * where triggers write the entries.
 */
import { AsyncLocalStorage } from "node:async_hooks"

/** The actor, without any secret. Only `userAgent` and `requestId` are text that a caller chooses. */
export interface Actor {
  /**
   * `console`: a console token. `subscriber`: a wallet that signed in. `operator`: a command on the service's own
   * machine.
   */
  kind: "console" | "api_key" | "subscriber" | "operator"
  /** The subject of a token, the id of a key, a wallet (CAIP-10), or the name of a Unix user. */
  id: string
  /** Who issued the token. */
  issuer?: string
  /** The client's IP address, as far as `TRUSTED_PROXIES` reveals it. */
  address?: string | undefined
  userAgent?: string | undefined
  /** Method and pattern of the route, or the command. */
  route: string
  requestId?: string
  /**
   * The membership that a person's request was admitted for. Each transaction of the request checks this membership.
   */
  member?: { merchantId: string; personId: string; role: string }
  /**
   * The key or session that the request was admitted with. Each transaction of the request checks that the key or
   * session is valid.
   */
  credential?: { key?: { id: string; hash: string }; sessionId?: string }
}

const present = new AsyncLocalStorage<Actor | undefined>()

/** Runs code on behalf of an actor, or of nobody, including everything that the code awaits and starts. */
export const withActor = <T>(actor: Actor | undefined, run: () => T): T =>
  actor === present.getStore() ? run() : present.run(actor, run)

/** Makes every later transaction of the current actor check this membership. */
export function holdMember(member: NonNullable<Actor["member"]>): void {
  const actor = present.getStore()
  if (actor) actor.member = member
}

/**
 * The error code of a transaction whose caller is no longer a member, or no longer has the role with which the request
 * was admitted.
 */
export const MEMBER_CHANGED = "SL001"

/** The error code of a transaction whose key was revoked, or whose session ended, after the request was admitted. */
export const CREDENTIAL_ENDED = "SL002"

/**
 * The statement that names the actor in a transaction, and checks the actor's membership; undefined without an actor.
 * The actor is in base64, so that nothing in it can be parsed as SQL, and every character of a name is kept.
 */
export function actorStatement(): string | undefined {
  const actor = present.getStore()
  if (!actor) return undefined
  const { member, credential, ...shown } = actor
  const held = member ? `, hold_member(${[member.merchantId, member.personId, member.role].map(quoted)})` : ""
  const key = credential?.key ? [credential.key.id, credential.key.hash].map(quoted) : ["null", "null"]
  const session = credential?.sessionId ? quoted(credential.sessionId) : "null"
  const holds = credential ? `, hold_credential(${[...key, session]})` : ""
  // Not `set local`, because pg_stat_statements would store each such statement separately, and the actors with them.
  return `select set_config('sluice.actor', '${Buffer.from(JSON.stringify(shown)).toString("base64")}', true)${held}${holds}`
}

/** An id or a role as a literal of SQL; throws for anything else. */
function quoted(name: string): string {
  if (!/^\w+$/.test(name)) throw new Error("an id may contain only letters, digits and _")
  return `'${name}'`
}
