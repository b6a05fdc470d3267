/** `sluice events resend`: resends every delivery of an event. */
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { connect } from "../profiles.ts"

/** Resends each delivery of the event, and prints the deliveries. */
export async function run({ args, options, out }: Input): Promise<void> {
  const [eventId = ""] = args
  const { deliveries } = connect(options)
  const sent: unknown[] = []
  for await (const { id } of deliveries.list({ eventId } as never)) sent.push(await deliveries.resend(id))
  if (sent.length === 0) throw new Failure(`${eventId} has no deliveries, so there is nothing to resend.`)
  out.show(sent)
}
