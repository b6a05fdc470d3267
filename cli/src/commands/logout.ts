/** `sluice logout`: removes a profile. */
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { profileOf, removeProfile } from "../profiles.ts"

/** Removes the profile. The key itself must be revoked in the console, because a key may not revoke keys. */
export async function run({ options, out }: Input): Promise<void> {
  const profile = profileOf(options)
  if (!profile) throw new Failure("There is no such profile.")
  removeProfile(options.profile)
  out.show({ removed: profile.name, revokeAt: `${profile.url}/console` })
}
