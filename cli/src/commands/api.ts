/** `sluice api METHOD PATH`: sends one request exactly as it is written. */
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { credentialOf } from "../profiles.ts"
import { readText } from "../read-text.ts"
import { request } from "../request.ts"

/** Prints the answer. The key is sent only to the service, so the path must belong to it. */
export async function run({ args, options, out }: Input): Promise<void> {
  const [method = "", path = ""] = args
  if (!/^[A-Za-z]+$/.test(method)) throw new Failure(`${method} is not an HTTP method, such as GET.`, 2)
  const { baseUrl, apiKey } = credentialOf(options)
  if (!path.startsWith("/") || new URL(`${baseUrl}${path}`).origin !== new URL(baseUrl).origin)
    throw new Failure("The path must start with /, such as /api/checkouts.", 2)
  const key = options.idempotencyKey as string | undefined
  const answer = await request(baseUrl, path, {
    method: method.toUpperCase(),
    body: typeof options.data === "string" ? await readText(options.data) : undefined,
    headers: { ...(apiKey ? { "x-api-key": apiKey } : {}), ...(key === undefined ? {} : { "idempotency-key": key }) },
  })
  out.show(out.isJson || typeof answer === "string" ? answer : JSON.stringify(answer, undefined, 2))
}
