/**
 * `sluice merchant limit`: sets how many requests a minute one merchant's API keys may make, instead of the limit in
 * the settings.
 */
import { withActor } from "../../platform/actor.ts"
import { readSettings } from "../../platform/config/read-settings.ts"
import { assertInstallation } from "../../platform/db/claim-installation.ts"
import type { Db } from "../../platform/db/open.ts"
import { keyBuckets } from "../../platform/limits/buckets.ts"
import { openForCommand } from "./open-for-command.ts"
import { operatorName } from "./operator-name.ts"
import { parseCommandLine, runCommand, UsageError } from "./run-command.ts"

const MOST = 1_000_000

const usage = `Sets how many requests per minute the API keys of one merchant may make, overriding the setting LIMIT_*.

  sluice merchant limit MERCHANT BUCKET NUMBER|default

  MERCHANT  the merchant's id, mer_…
  BUCKET    ${keyBuckets.join(", ")}
  NUMBER    requests per minute for each of the merchant's keys, and twenty times as many for all its keys together; 0 for no limit.
            \`default\` removes the merchant's own limit.

The limit applies in every process from the next request on, and appears in the merchant's audit log. Run this command
with the service's environment variables. The embedded database serves only one process: if you use it, stop the service
first.
Exits with 0 when the limit is set, 1 when it is not, 2 for an invalid command line.
`

/**
 * Sets a merchant's limit in a bucket; undefined removes that limit. Returns a sentence; throws an Error with a
 * sentence if there is no such merchant.
 */
export async function limitMerchant(
  db: Db,
  { merchantId, bucket, perMinute }: { merchantId: string; bucket: string; perMinute: number | undefined },
): Promise<string> {
  const key = { merchant_id: merchantId, bucket }
  return await db.transaction().execute(async db => {
    const known = await db.selectFrom("merchants").select("id").where("id", "=", merchantId).executeTakeFirst()
    if (!known) throw new Error(`There is no merchant ${merchantId}.`)
    if (perMinute === undefined) {
      await db
        .deleteFrom("merchant_limits")
        .where("merchant_id", "=", merchantId)
        .where("bucket", "=", bucket)
        .execute()
      return `${merchantId} uses the limit from the settings for ${bucket}.`
    }
    await db
      .insertInto("merchant_limits")
      .values({ ...key, per_minute: perMinute })
      .onConflict(conflict => conflict.columns(["merchant_id", "bucket"]).doUpdateSet({ per_minute: perMinute }))
      .execute()
    return perMinute === 0
      ? `${merchantId} has no limit in ${bucket}.`
      : `Each API key of ${merchantId} may make ${perMinute} requests per minute in ${bucket}.`
  })
}

async function main(args: string[]): Promise<string> {
  const { positionals, values } = parseCommandLine(args, { allowPositionals: true })
  const [action, merchantId, bucket, number, ...more] = positionals
  if (values.help) return usage.trimEnd()
  if (action !== "limit" || !merchantId || !bucket || !number || more.length > 0)
    throw new UsageError("Name the action (limit), a merchant, a bucket and a number.")
  if (!(keyBuckets as readonly string[]).includes(bucket))
    throw new UsageError(`There is no bucket ${bucket} for API keys; it must be one of: ${keyBuckets.join(", ")}.`)
  const perMinute = number === "default" ? undefined : wholeNumber(number)
  const settings = readSettings()
  const { db, close } = await openForCommand(settings)
  try {
    await assertInstallation(db, settings.mode)
    const by = { kind: "operator", id: operatorName(), route: "sluice merchant limit" } as const
    return await withActor(by, () => limitMerchant(db, { merchantId, bucket, perMinute }))
  } finally {
    await close()
  }
}

function wholeNumber(text: string): number {
  const number = /^\d{1,7}$/.test(text) ? Number.parseInt(text, 10) : MOST + 1
  if (number > MOST) throw new UsageError(`The number must be from 0 to ${MOST}, or \`default\`, not ${text}.`)
  return number
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("merchant", main, { failed: "Nothing was changed." })
