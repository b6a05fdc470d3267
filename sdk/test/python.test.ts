// The Python package's verify accepts what the service signs, and refuses each change of it, as ours does.
import { execFile } from "node:child_process"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import fc from "fast-check"
import { expect, it } from "vitest"
import { signatureHeaders } from "../../server/src/account/webhooks/webhook.ts"
import { root } from "../../server/test/e2e/program.ts"
import { webhooks } from "../src/index.ts"

const secret = "whsec_test"
const body = JSON.stringify({
  id: "evt_1",
  event: "ping",
  createdAt: "2026-01-31T12:00:00.000Z",
  data: { text: "東京 ☕" },
})
const t = Math.floor(Date.now() / 1_000)
const headers = signatureHeaders([secret], { eventId: "evt_1", body, t })
const signature = headers["service-signature"] ?? ""

interface Case {
  body: string
  header?: string
  secrets: string[]
  now: number
}
const good: Case = { body: Buffer.from(body).toString("base64"), header: signature, secrets: [secret], now: t }
const without = ({ header: _, ...rest }: Case): Case => rest

const program = `
import base64, json, sys
sys.path.insert(0, "python")
from sluice import webhooks
def verdict(case):
    headers = {"Service-Signature": case["header"]} if "header" in case else {}
    try:
        event = webhooks.verify(base64.b64decode(case["body"]), headers, case["secrets"], now=case["now"])
        return event["type"]
    except (webhooks.SignatureError, TypeError) as error:
        return type(error).__name__
print(json.dumps([verdict(json.loads(line)) for line in sys.stdin]))
`

const byPython = (cases: Case[]): Promise<string[]> => {
  const run = promisify(execFile)("python3", ["-c", program], { cwd: root, maxBuffer: 10_000_000 })
  run.child.stdin?.end(cases.map(each => `${JSON.stringify(each)}\n`).join(""))
  return run.then(({ stdout }) => JSON.parse(stdout))
}

const byOurs = async ({ body, header, secrets, now }: Case): Promise<string> => {
  try {
    const given = header === undefined ? {} : { "Service-Signature": header }
    return (await webhooks.verify(Buffer.from(body, "base64"), given, secrets, { now: now * 1_000 })).type
  } catch (error) {
    return (error as Error).name
  }
}

it("runs the code of its README", async () => {
  const readme = readFileSync(join(root, "python/README.md"), "utf8")
  const [verifies, sells, ...more] = [...readme.matchAll(/```python\n([\s\S]*?)```/g)].map(([, code]) => code)
  expect(more).toEqual([])
  const shown = `
import json, sys
sys.path.insert(0, "python")
given = json.load(sys.stdin)
class App:
    def add_middleware(self, middleware, **options):
        self.middleware = middleware(None, **options)
names = {"app": App(), "body": given["body"].encode(), "headers": given["headers"], "secret": given["secret"]}
exec(given["verifies"], names)
exec(given["sells"], names)
print(names["event"]["type"], names["app"].middleware.prices)
`
  const payTo = `0x${"12".repeat(20)}`
  const env = { ...process.env, SLUICE_URL: "http://127.0.0.1:9", SLUICE_API_KEY: "k", PAY_TO: payTo }
  const run = promisify(execFile)("python3", ["-c", shown], { cwd: root, env })
  run.child.stdin?.end(JSON.stringify({ verifies, sells, body, headers, secret }))
  expect((await run).stdout).toBe("ping {'GET /weather': '0.05'}\n")
})

it("agrees with ours on what is good, late, badly written or changed", async () => {
  const text = (other: string) => ({
    ...good,
    body: Buffer.from(other).toString("base64"),
    header: signatureHeaders([secret], { eventId: "evt_1", body: other, t })["service-signature"] ?? "",
  })
  const cases: Case[] = [
    good,
    { ...good, secrets: ["whsec_other", secret] },
    { ...good, secrets: ["whsec_other"] },
    { ...good, secrets: [] },
    { ...good, secrets: [""] },
    { ...good, now: t + 290 },
    { ...good, now: t + 310 },
    { ...good, now: t - 310 },
    without(good),
    ...["", "v1=00", `t=1,${signature}`, `t=1e9,${signature}`, signature.replace("v1", "v0"), "t=١,v1=00"].map(
      header => ({
        ...good,
        header,
      }),
    ),
    ...["[]", "null", "{}", "no json", '{"id":"evt_1","event":1,"createdAt":"2026-01-31"}'].map(text),
    text('{"id":"e","event":"a.new.one","createdAt":"2026-01-31","more":1}'),
  ]
  const ours = await Promise.all(cases.map(byOurs))
  expect(ours.slice(0, 4)).toEqual(["ping", "ping", "SignatureError", "TypeError"])
  expect(await byPython(cases)).toEqual(ours)
})

it("refuses each changed body", async () => {
  const bytes = Buffer.from(body)
  const changes = fc.sample(fc.tuple(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 })), {
    numRuns: 2_000,
    seed: 3,
  })
  const cases = changes.map(([at, by]) => {
    const changed = Buffer.from(bytes)
    changed[at] = (changed[at] ?? 0) ^ by
    return { ...good, body: changed.toString("base64") }
  })
  expect(new Set(await byPython(cases))).toEqual(new Set(["SignatureError"]))
})
