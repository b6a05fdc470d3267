/**
 * A puller that a test kills: it takes a listener's deliveries from the stream, posts each to `TO`, and reports the answers. It kills
 * itself at the `DIE_AT`-th delivery, `received`, `handled` or `reported` as `DIE_WHEN` says.
 */
import { setTimeout as sleep } from "node:timers/promises"

const { URL: base = "", KEY = "", LISTENER = "", TO = "", DIE_WHEN = "", DIE_AT = "0" } = process.env
const path = `${base}/api/console/listeners/${LISTENER}`
const results: { deliveryId: string; attempt: number }[] = []
const seen: Record<string, number> = {}

function step(name: string, n = 1): void {
  seen[name] = (seen[name] ?? 0) + n
  if (name === DIE_WHEN && seen[name] >= Number(DIE_AT)) process.kill(process.pid, "SIGKILL")
}

interface Pulled {
  deliveryId: string
  attempt: number
  headers: Record<string, string>
  body: string
}

async function handle({ deliveryId, attempt, headers, body }: Pulled): Promise<void> {
  step("received")
  const startedAt = performance.now()
  const { status } = await fetch(TO, { method: "POST", headers, body: Buffer.from(body, "base64") })
  step("handled")
  const durationMs = Math.round(performance.now() - startedAt)
  results.push(Object.assign({ deliveryId, attempt }, { status, durationMs, answer: "from localhost" }))
}

/** Reports what there is until the service takes it: one that is down, or refuses for its limits, is asked again. */
async function report(): Promise<void> {
  for (;;) {
    const batch = results.slice(0, 100)
    if (batch.length > 0) {
      const sent = { method: "POST", headers: { "x-api-key": KEY, "content-type": "application/json" } }
      const answer = await fetch(`${path}/results`, { ...sent, body: JSON.stringify(batch) }).catch(() => undefined)
      if (answer?.ok) {
        results.splice(0, batch.length)
        step("reported", batch.length)
      }
    }
    await sleep(20)
  }
}

async function pull(): Promise<void> {
  const answer = await fetch(`${path}/deliveries`, { headers: { "x-api-key": KEY, accept: "text/event-stream" } })
  let text = ""
  for await (const chunk of answer.body ?? []) {
    text += Buffer.from(chunk).toString("latin1")
    const events = text.split("\n\n")
    text = events.pop() ?? ""
    for (const event of events) {
      const [, data] = /^event: delivery\ndata: (.*)$/m.exec(event) ?? []
      if (data !== undefined) await handle(JSON.parse(data))
    }
  }
}

void report()
process.stdout.write("pulling\n")
for (;;) {
  await pull().catch(() => {})
  await sleep(100)
}
