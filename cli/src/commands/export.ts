/** `sluice export`: exports a report as CSV. */
import { writeFile } from "node:fs/promises"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { connect } from "../profiles.ts"
import type { Progress } from "../progress.ts"

/** Prints the report, or writes it to a new file. An existing file is never overwritten. */
export async function run({ args, options, out }: Input): Promise<void> {
  const [report = ""] = args
  const { from, to, tz, out: file } = options as Record<string, string | undefined>
  let progress: Progress | undefined
  const { reports } = connect(options, { fetch: counting(bytes => progress?.set(`${Math.ceil(bytes / 1_024)} KiB`)) })
  if (!Object.hasOwn(reports, report))
    throw new Failure(`There is no report named ${report}. Choose books, payouts, balance or tax.`, 2)
  const query = { ...(from ? { from } : {}), ...(to ? { to } : {}), ...(tz ? { tz } : {}) }
  progress = out.progress(`Reading the report ${report} ...`)
  const csv = await reports[report as keyof typeof reports](query as never).finally(progress.end)
  if (file === undefined) return out.show(out.isJson ? { csv } : csv.trimEnd())
  await writeFile(file, csv, { flag: "wx" }).catch(error => {
    throw new Failure(`${file} can't be written: ${(error as Error).message}`)
  })
  out.show({ file, bytes: Buffer.byteLength(csv) })
}

/** Returns a `fetch` that reports how many bytes of a body have arrived. */
const counting =
  (read: (bytes: number) => void): typeof fetch =>
  async (input, init) => {
    const response = await fetch(input, init)
    if (!response.body) return response
    let bytes = 0
    const count = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
      transform: (chunk, controller) => {
        bytes += chunk.byteLength
        read(bytes)
        controller.enqueue(chunk)
      },
    })
    return new Response(response.body.pipeThrough(count), response)
  }
