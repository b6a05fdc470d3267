/** `sluice export`: a report as CSV. */
import { writeFile } from "node:fs/promises"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { connect } from "../profiles.ts"

/** Prints the report, or writes it to a new file. A file that exists stays as it is. */
export async function run({ args, options, out }: Input): Promise<void> {
  const [report = ""] = args
  const { from, to, tz, out: file } = options as Record<string, string | undefined>
  const { reports } = connect(options)
  if (!Object.hasOwn(reports, report))
    throw new Failure(`There is no report ${report}: books, payouts, balance or tax.`, 2)
  const query = { ...(from ? { from } : {}), ...(to ? { to } : {}), ...(tz ? { tz } : {}) }
  const csv = await reports[report as keyof typeof reports](query as never)
  if (file === undefined) return out.show(out.isJson ? { csv } : csv.trimEnd())
  await writeFile(file, csv, { flag: "wx" }).catch(error => {
    throw new Failure(`${file} can't be written: ${(error as Error).message}`)
  })
  out.show({ file, bytes: Buffer.byteLength(csv) })
}
