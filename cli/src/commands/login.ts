/**
 * `sluice login`: gets a key through the device sign-in (RFC 8628), and stores it in a profile. No browser is opened.
 */
import { hostname } from "node:os"
import { setTimeout as sleep } from "node:timers/promises"
import { SluiceError } from "../../../sdk/src/errors.ts"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { DEFAULT_URL, profilesFile, saveProfile, trimmed } from "../profiles.ts"
import { request } from "../request.ts"

/** By how many seconds the pause grows after `slow_down`. */
const SLOWER_S = 5

interface Begun {
  device_code: string
  user_code: string
  verification_uri: string
  expires_in: number
  interval: number
}
interface Key {
  key: string
  name: string
  merchantId: string
  scopes: string[]
  expiresAt: string
}

/**
 * Shows the code, waits for the person's decision, and saves the key. With `--json`, the code and the result are one
 * line each.
 */
export async function run({ options, out }: Input): Promise<void> {
  const url = trimmed(options.url ?? process.env.SLUICE_URL ?? DEFAULT_URL)
  const scopes = typeof options.scopes === "string" ? options.scopes.split(",") : undefined
  const host =
    hostname()
      .replaceAll(/[^\w.-]/g, "-")
      .slice(0, 64) || "unnamed"
  const post = async (path: string, body: object) =>
    await request(url, path, { method: "POST", body: JSON.stringify(body) })
  const begun = (await post("/api/device", { host, ...(scopes ? { scopes } : {}) })) as Begun
  const code = begun.user_code.replace(/^(.{4})/, "$1-")
  if (out.isJson) out.show({ verificationUri: begun.verification_uri, userCode: code, expiresIn: begun.expires_in })
  out.note(`Open ${begun.verification_uri} and type the code ${code}.\nWaiting for your approval ...`)
  const key = await waitForKey(
    begun,
    async () => (await post("/api/device/token", { device_code: begun.device_code })) as Key,
  )
  const { merchantId, name, expiresAt } = key
  const keyIn = saveProfile(options.profile, { url, apiKey: key.key, name, merchantId, expiresAt })
  out.show({ url, merchantId, name, scopes: key.scopes, expiresAt, savedIn: profilesFile(), keyIn })
}

/** Asks until the person has decided. If an answer is lost, asks again. */
async function waitForKey({ interval, expires_in }: Begun, ask: () => Promise<Key>): Promise<Key> {
  let pauseS = interval
  for (const endsAt = Date.now() + expires_in * 1_000; Date.now() < endsAt; ) {
    await sleep(pauseS * 1_000)
    try {
      return await ask()
    } catch (error) {
      const { code, retryable, message, requestId } = error as SluiceError
      if (!(error instanceof SluiceError)) throw error
      if (`${code}` === "slow_down") pauseS += SLOWER_S
      else if (`${code}` === "access_denied")
        throw new SluiceError(message, { code, status: 403, requestId, docUrl: "" })
      else if (`${code}` !== "authorization_pending" && !retryable) throw error
    }
  }
  throw new Failure("Nobody approved in time. Run `sluice login` again.", 3)
}
