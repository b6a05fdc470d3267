/** `sluice open`: where a thing is in the console. */
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { credentialOf } from "../profiles.ts"

/** Prints the address of the console, or of the thing with this id. It opens no browser: scripts and remote shells have none. */
export async function run({ args, options, out }: Input): Promise<void> {
  const [id] = args
  const { baseUrl } = credentialOf(options)
  if (id !== undefined && !/^[a-z]+_[a-z0-9]{24}$/.test(id)) throw new Failure(`${id} is no id, such as cs_….`, 2)
  const url = id === undefined ? `${baseUrl}/console` : `${baseUrl}/console/search?q=${id}`
  out.show(out.isJson ? { url } : url)
}
