/** `sluice doctor`: checks whether this machine can use the service, and says what to do if it can't. */
import { SluiceError } from "../../../sdk/src/errors.ts"
import type { Input } from "../command.ts"
import { Failure, factsOf } from "../failure.ts"
import { connect, credentialOf } from "../profiles.ts"

/**
 * The largest difference between the clocks. It is well below the five minutes for which signatures of events are
 * valid.
 */
const MAX_SKEW_MS = 60_000

interface Finding {
  check: string
  ok: boolean
  message: string
}

/** Prints a finding for each part. Throws if anything is wrong, with the exit code of the service's failure. */
export async function run({ options, out }: Input): Promise<void> {
  const { baseUrl, apiKey } = credentialOf(options)
  const findings: Finding[] = [
    {
      check: "key",
      ok: apiKey !== undefined,
      message: apiKey ? "there is a key" : "run `sluice login`, or set SLUICE_API_KEY",
    },
  ]
  const asked = Date.now()
  const response = await fetch(`${baseUrl}/healthz`, { signal: AbortSignal.timeout(10_000) }).catch(() => undefined)
  findings.push({
    check: "service",
    ok: response?.ok === true,
    message: response ? `${baseUrl} answers HTTP ${response.status}` : `${baseUrl} can't be reached`,
  })
  const date = response?.headers.get("date")
  if (date) {
    const skewMs = Math.abs(Date.parse(date) - (asked + Date.now()) / 2)
    findings.push({
      check: "clock",
      ok: skewMs < MAX_SKEW_MS,
      message: `differs from the service's clock by ${Math.round(skewMs / 1_000)} s`,
    })
  }
  let exitCode: 0 | 1 | 2 | 3 | 4 = response?.ok ? (apiKey ? 0 : 3) : 4
  if (response?.ok && apiKey)
    try {
      await connect(options).checkouts.list().page({ limit: 1 })
      findings.push({ check: "access", ok: true, message: "the key may read checkouts" })
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error
      exitCode = factsOf(error).exitCode
      findings.push({ check: "access", ok: false, message: `${error.message} (${error.code})` })
    }
  out.show(
    out.isJson
      ? { findings }
      : findings.map(({ check, ok, message }) => `${ok ? "ok " : "NOT"}  ${check.padEnd(8)} ${message}`).join("\n"),
  )
  const wrong = findings.filter(({ ok }) => !ok)
  if (wrong.length > 0) throw new Failure(`Not ready: ${wrong.map(({ check }) => check).join(", ")}.`, exitCode || 1)
}
