/** The verbs with which a file of the product may be named that does I/O, and the files that need none. */

/** A name that begins with one of these says what its file does; a new verb is added here. */
export const verbs = new Set(
  `
    accept adopt advance answer apply approve ask assign authorize await backup begin cache change check claim
    classify compare confirm count cover create decide deliver describe emit end erase explain fetch find finish fold follow
    forget format gather
    give halt hold insert invite keep learn lease limit list load lock log make manage measure migrate move name
    note notify number observe open pick prepare prove put read reconcile record reencrypt refuse remake render report
    resolve retry rotate run scan screen sell send serve settle show sign simulate skip start store submit subscribe sum take
    trace track try unstick use verify wake watch withdraw write
  `
    .trim()
    .split(/\s+/),
)

/** Files named by a noun that take a context nevertheless, and why. */
export const nounsWithContext: Record<string, string> = {
  "server/src/platform/context.ts": "it declares the context",
  "server/src/platform/http/server.ts": "it declares the type of the server, which every file of routes takes",
  "server/src/platform/jobs/chain-clock.ts": "it takes the settings of a context only, and writes SQL",
  "server/src/ledger/txmanager/lane.ts": "an interface, whose functions take a context",
  "server/src/ledger/payouts/payout-lane.ts": "implements the interface of `lane.ts`",
  "server/src/ledger/relays/relay-lane.ts": "implements the interface of `lane.ts`",
  "server/src/ledger/receipts/zerog/storage-lane.ts": "implements the interface of `lane.ts`",
  "server/src/ledger/settlement/sellable.ts": "an interface, whose functions take a context",
  "server/src/products/proxy/payments.ts": "an interface, whose functions take a context",
}
