/** `sluice open`: says where an object is in the console. */
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { connect, credentialOf } from "../profiles.ts"

/**
 * Prints the address of the console, or of the object with this id. No browser is opened, because scripts and remote
 * shells have none.
 */
export async function run({ args, options, out }: Input): Promise<void> {
  const [id] = args
  const url = id === undefined ? `${credentialOf(options).baseUrl}/console` : await addressOf(options, id)
  out.show(out.isJson ? { url } : url)
}

async function addressOf(options: Input["options"], id: string): Promise<string> {
  if (!/^[a-z]+_[a-z0-9]{24}$/.test(id)) throw new Failure(`${id} is not an id, such as cs_….`, 2)
  const found = (await connect(options).search.find({ q: id })).find(each => each.id === id)
  if (!found) throw new Failure(`The service has no object with the id ${id}.`)
  return found.url
}
