/** `sluice pay`: lets a test buyer of the sandbox pay a checkout. */

import { Sluice } from "../../../sdk/src/sluice.ts"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { credentialOf } from "../profiles.ts"
import { type Manner, payCheckout } from "../sandbox.ts"

const WAIT_S = 25
const MAX_WAIT_MS = 120_000

/** Pays, waits for the confirmation if one is expected, and prints the checkout's status. */
export async function run({ args, options, out }: Input): Promise<void> {
  const id = /(cs_[a-z0-9]{24})$/.exec(args[0] ?? "")?.[1]
  if (id === undefined) throw new Failure("Name a checkout: its id (cs_…), or the address of its page.", 2)
  const { partial, over, late, twice, asAgent } = options as Omit<Manner, "buyer">
  if ([partial, over, late, twice, asAgent].filter(Boolean).length > 1)
    throw new Failure("Choose only one way to pay.", 2)
  const buyer = Number(options.buyer ?? 0)
  if (!Number.isInteger(buyer) || buyer < 0) throw new Failure("--buyer must be an index from 0.", 2)
  const { baseUrl, apiKey } = credentialOf(options)
  // Anyone with a checkout's id may pay it, so no key is needed, but the client requires one.
  const sluice = Object.assign(new Sluice({ baseUrl, apiKey: apiKey ?? "none" }), { baseUrl })
  const progress = out.progress(`Paying ${id} ...`)
  try {
    const txHashes = await payCheckout(sluice, id, { ...options, buyer })
    const waits = options.wait !== false && !partial && !late
    out.show(await standingOf(sluice, id, waits, txHashes))
  } finally {
    progress.end()
  }
}

/** Returns the status of the checkout. With `waits`, returns it once the payment is decided. */
async function standingOf(sluice: Sluice, id: string, waits: boolean, txHashes: string[]): Promise<object> {
  for (const endsAt = Date.now() + MAX_WAIT_MS; ; ) {
    const { status, exception, amount, amountReceived, currency, message } = await sluice.pay.status(
      id,
      waits ? { wait: WAIT_S } : {},
    )
    if (waits && ["pending", "verifying"].includes(status)) {
      if (Date.now() < endsAt) continue
      throw new Failure(`${id} is still ${status}: ${message}`, 4)
    }
    return { id, status, exception, amount, amountReceived, currency, txHashes, message }
  }
}
