import { once } from "node:events"
import { get, type IncomingMessage } from "node:http"
import { connect } from "node:net"
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { AUDIENCE } from "../../../test/issuer.ts"
import { noLimits, startService, type TestService } from "../../../test/service.ts"
import { openIdentities } from "../../account/identity/open-identities.ts"
import { tokenIssuer } from "../../account/identity/tokens.ts"
import { openApp } from "../../app.ts"
import { errorTable } from "../errors.ts"
import { openLog } from "../log.ts"
import { defaultBounds } from "./connections.ts"
import { openServer } from "./server.ts"

let service: TestService
let port: number
beforeAll(async () => {
  service = await startService({ settings: { consoleOrigins: ["https://console.example"], metricsToken: "m-token" } })
  port = Number(new URL(await service.listen()).port)
})
afterAll(() => service.stop())
beforeEach(() => service.empty())

describe("every answer", () => {
  it("carries a request id: the caller's when it is acceptable, else a new one", async () => {
    const id = async (given?: string) =>
      (
        await service.call("GET", "/healthz", undefined, {
          headers: given === undefined ? {} : { "x-request-id": given },
        })
      ).headers["x-request-id"]
    expect(await id("order-17:a.b")).toBe("order-17:a.b")
    for (const odd of [undefined, "a b", "x".repeat(129), "<script>", "ä"])
      expect(await id(odd)).toMatch(/^[0-9a-f-]{36}$/)
  })

  it("that is an error has the one flat shape, and the id in it", async () => {
    const answer = await service.call("GET", "/nowhere", undefined, { headers: { "x-request-id": "abc" } })
    expect(answer).toMatchObject({
      status: 404,
      body: { error: "NOT_FOUND", message: errorTable.NOT_FOUND.message, requestId: "abc" },
    })
    expect(Object.keys(answer.body).sort()).toEqual(["error", "message", "requestId"])
  })

  it("under /api and /x402 may not be stored, in whatever form the URL is sent", async () => {
    const settlement = "/x402/settlements/a/b"
    for (const target of [
      "/api/console/settings",
      "/%61pi/console/settings",
      "http://a/api/console/settings",
      settlement,
    ]) {
      const socket = connect(port, "127.0.0.1")
      socket.write(`GET ${target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
      let answer = ""
      for await (const data of socket) answer += data
      expect(answer, target).toMatch(/^HTTP\/1\.1 401 .*\r\ncache-control: no-store\r\n/s)
    }
  })
})

const JSON_CHUNKS = "Content-Type: application/json\r\nTransfer-Encoding: chunked"

describe("bad input", () => {
  const submit = (payload: string, headers: Record<string, string> = { "content-type": "application/json" }) =>
    service.call("POST", "/api/paywalls/x/pay", payload, { headers })

  it.each([
    ["a body of 1 MB", () => submit(JSON.stringify({ txHash: "x".repeat(1_000_000) })), 413, "PAYLOAD_TOO_LARGE"],
    [
      "another content type",
      () => submit("a=b", { "content-type": "application/x-www-form-urlencoded" }),
      415,
      "UNSUPPORTED_MEDIA_TYPE",
    ],
    [
      "JSON of another encoding",
      () => submit("{}", { "content-type": "application/json; charset=utf-16" }),
      415,
      "UNSUPPORTED_MEDIA_TYPE",
    ],
    ["broken JSON", () => submit("{"), 400, "VALIDATION_ERROR"],
    ["a field named __proto__", () => submit('{"__proto__":{"a":1}}'), 400, "VALIDATION_ERROR"],
    ["a URL that can't be decoded", () => service.call("GET", "/api/paywalls/%zz"), 400, "VALIDATION_ERROR"],
    ["a NUL in a path", () => service.call("GET", "/api/paywalls/%00"), 400, "VALIDATION_ERROR"],
    ["a NUL in a query", () => service.call("GET", "/api/paywalls/x/verify?address=%00"), 400, "VALIDATION_ERROR"],
    ["a very long parameter", () => service.call("GET", `/api/paywalls/${"x".repeat(200)}`), 404, "NOT_FOUND"],
    ["an unknown method", () => service.call("DELETE", "/healthz"), 404, "NOT_FOUND"],
  ])("%s is a clear error", async (_what, send, status, error) => {
    const answer = await send()
    expect({ status: answer.status, error: answer.body.error }).toEqual({ status, error })
    expect(answer.body.message).not.toBe("")
    expect(answer.headers["x-request-id"]).toBeDefined()
  })

  it("is a body that is not UTF-8: two such bodies could be read as the same text", async () => {
    for (const bytes of [[0xe9], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xf0, 0x9f, 0x98]]) {
      const body = Buffer.concat([Buffer.from('{"txHash":"'), Buffer.from(bytes), Buffer.from('"}')])
      const headers = { "content-type": "application/json" }
      const url = `http://127.0.0.1:${port}/api/paywalls/x/pay`
      const answer = await fetch(url, { method: "POST", headers, body })
      expect(answer.status).toBe(400)
      expect(await answer.json()).toHaveProperty("details", [{ path: "", message: "The body must be text in UTF-8." }])
    }
    const good = await submit('{"txHash":"é😀"}')
    expect(good.body.details?.[0].path ?? good.body.error).not.toBe("")
  })

  it("is not a byte-order mark before a body: it is left out, and a second one is named", async () => {
    const body = { name: "Shop" }
    const put = (text: string) => service.call("PUT", "/api/console/settings", text, { as: "shop" })
    expect((await put(`\ufeff${JSON.stringify(body)}`)).body).toMatchObject(body)
    const { status, body: refused } = await put(`\ufeff\ufeff${JSON.stringify(body)}`)
    expect([status, refused.details[0].message]).toEqual([400, expect.stringContaining("U+FEFF")])
  })

  it("is answered with no more of what was sent than helps", async () => {
    const name = "x".repeat(100_000)
    const settings = { payoutAddresses: { [name]: "a" } }
    const { body } = await service.call("PUT", "/api/console/settings", settings, { as: "shop" })
    expect(body.details).toHaveLength(1)
    expect(body.details[0].path.length).toBeLessThan(300)
    const many = Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`n${i}`, "a"]))
    const all = await service.call("PUT", "/api/console/settings", { payoutAddresses: many }, { as: "shop" })
    expect([all.status, all.body.details.length <= 100]).toEqual([400, true])
  })

  it("is explained in words that no framework would use", async () => {
    const { body } = await service.call("GET", "/api/paywalls/%zz")
    expect(body.details).toEqual([{ path: "", message: "The URL can't be decoded. Check its percent signs." }])
  })

  it("names the field that was meant", async () => {
    const fields = '{"name":"a","pirce":5,"price":5,"amount":5}'
    const { body } = await service.call("POST", "/api/console/paywalls", fields, { as: "shop" })
    expect(body.details).toEqual([
      { path: "pirce", message: "`pirce` is not a field of this request: did you mean `price`?" },
      { path: "amount", message: "`amount` is not a field of this request; remove it." },
    ])
  })

  it.each([
    ["not HTTP", "hello\r\n\r\n", "not valid HTTP"],
    ["no Host", "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", "is required"],
    ["two Hosts", "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", "must be sent only once"],
    ["a URL of 20 KB", `GET /${"x".repeat(20_000)} HTTP/1.1\r\nHost: a\r\n\r\n`, "too large"],
    ["a bad chunk", `POST / HTTP/1.1\r\nHost: a\r\n${JSON_CHUNKS}\r\n\r\nzz\r\n`, "not valid HTTP"],
  ])("%s has the shape of every error, and ends the connection", async (_what, text, words) => {
    const { ctx, issuer } = service
    const identities = openIdentities(ctx, tokenIssuer(issuer.issuer, ctx.settings.oidcAudience))
    const own = openServer(ctx, identities, undefined, undefined, { "POST /": { by: "public" } })
    own.post("/", async () => ({}))
    await own.listen({ host: "127.0.0.1", port: 0 })
    const socket = connect((own.server.address() as { port: number }).port, "127.0.0.1")
    let answer = ""
    socket.on("data", data => {
      answer += data
    })
    socket.write(text)
    await once(socket, "close")
    await own.close()
    const [head = "", body = ""] = answer.split("\r\n\r\n")
    expect(head).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/)
    const { requestId, ...rest } = JSON.parse(body)
    expect(head.toLowerCase()).toContain(`x-request-id: ${requestId}`)
    expect(rest).toEqual({
      error: "VALIDATION_ERROR",
      message: errorTable.VALIDATION_ERROR.message,
      details: [{ path: expect.any(String), message: expect.stringContaining(words) }],
    })
  })

  const first = "GET /whole HTTP/1.1\r\nHost: a\r\n\r\n"
  const chunked = `HTTP/1.1\r\nHost: a\r\n${JSON_CHUNKS}\r\n\r\n`
  it.each([
    ["one request", `${first}BROKEN\r\n\r\n`, ["200 OK", "<whole>", "400 Bad Request"]],
    ["two requests", `${first}${first}BROKEN\r\n\r\n`, ["200 OK", "<whole>", "200 OK", "<whole>", "400 Bad Request"]],
    ["a bad chunk of a later one", `${first}POST /whole ${chunked}zz\r\n`, ["200 OK", "<whole>", "400 Bad Request"]],
    ["a stream", "GET /parts HTTP/1.1\r\nHost: a\r\n\r\nBROKEN\r\n\r\n", ["200 OK", "<a>", "<b>", "400 Bad Request"]],
    ["a bad chunk under its own answer", `POST /parts ${chunked}zz\r\n`, ["200 OK", "<a>"]],
  ])("what is not HTTP takes no other answer's place: %s", async (_what, text, answers) => {
    const { ctx, issuer } = service
    const identities = openIdentities(ctx, tokenIssuer(issuer.issuer, ctx.settings.oidcAudience))
    const names = ["GET /parts", "POST /parts", "GET /whole", "POST /whole"]
    const rows = Object.fromEntries(names.map(name => [name, { by: "public" } as const]))
    const own = openServer(ctx, identities, undefined, undefined, rows)
    const seen = Promise.withResolvers<void>()
    const begun = Promise.withResolvers<void>()
    let posted = 0
    own.addHook("onRequest", ({ url }, reply, done) => {
      if (url !== "/parts") return done()
      // Before its body is read.
      reply.hijack()
      reply.raw.write("<a>", () => begun.resolve())
      void seen.promise.then(() => reply.raw.end("<b>"))
    })
    own.get("/parts", async () => "")
    own.post("/parts", async () => "")
    own.get("/whole", async () => {
      await seen.promise
      return "<whole>"
    })
    own.post("/whole", async () => {
      posted++
      return "<posted>"
    })
    await own.listen({ host: "127.0.0.1", port: 0 })
    own.server.on("clientError", () => setImmediate(seen.resolve))
    const socket = connect((own.server.address() as { port: number }).port, "127.0.0.1")
    let read = ""
    socket.on("error", () => undefined).on("data", data => (read += data))
    // The answer of a stream has begun before the bytes that are not HTTP come.
    const at = text.startsWith(first) ? 0 : text.indexOf("\r\n\r\n") + 4
    socket.write(text.slice(0, at))
    if (at > 0) await begun.promise
    socket.write(text.slice(at))
    await once(socket, "close")
    await own.close()
    expect(read.match(/(?<=HTTP\/1\.1 )\d+ [\w ]+|<\w+>/g)).toEqual(answers)
    expect(posted).toBe(0)
  })

  it("an unknown expectation is ignored, and a stop does not wait for an endless body", async () => {
    const { ctx, issuer } = service
    const tokens = tokenIssuer(issuer.issuer, ctx.settings.oidcAudience)
    const own = openServer(ctx, openIdentities(ctx, tokens), { ...defaultBounds, closingMs: 10 })
    const address = await own.listen({ host: "127.0.0.1", port: 0 })
    const answer = await new Promise<IncomingMessage>((resolve, reject) =>
      get(`${address}/nowhere`, { headers: { expect: "a-miracle" } }, resolve).once("error", reject),
    )
    answer.resume()
    expect(answer.statusCode).toBe(404)
    const socket = connect(Number(new URL(address).port), "127.0.0.1")
    socket.on("error", () => undefined)
    const came = once(own.server, "request")
    socket.write("POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
    await came
    await own.close()
  })

  it("of a path without a route is answered before its body arrives", async () => {
    for (const path of ["/healthz", "/docs/json", "/nowhere"]) {
      const socket = connect(port, "127.0.0.1")
      socket.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n`)
      const [answer] = await once(socket, "data")
      socket.destroy()
      expect(String(answer)).toMatch(/^HTTP\/1\.1 404 /)
    }
  })

  it("that never ends is cut off", async () => {
    const { ctx, issuer } = service
    const own = openServer(ctx, openIdentities(ctx, tokenIssuer(issuer.issuer, ctx.settings.oidcAudience)))
    const { requestTimeout, headersTimeout } = own.server
    expect({ requestTimeout, headersTimeout }).toEqual({ requestTimeout: 60_000, headersTimeout: 60_000 })
    await own.close()
  })

  it("a fault of our own is a 500 that does not reveal its cause", async () => {
    const broken = await startService()
    await broken.ctx.db.schema.dropTable("access").execute()
    const made = await broken
      .merchant("shop")
      .then(() => broken.call("POST", "/api/console/paywalls", { name: "a", price: 5 }, { as: "shop" }))
    const answer = await broken.call("GET", `/api/paywalls/${made.body.id}/verify?address=0x${"1".repeat(40)}`)
    await broken.stop()
    expect(answer).toMatchObject({
      status: 500,
      body: { error: "INTERNAL_ERROR", message: errorTable.INTERNAL_ERROR.message },
    })
    expect(JSON.stringify(answer.body)).not.toContain("access")
  })
})

describe("CORS", () => {
  const from = (origin: string, url: string, extra = {}) =>
    service.call("GET", url, undefined, { headers: { origin, ...extra } })

  it("lets any origin read public routes, and see the limits", async () => {
    const { headers } = await from("https://shop.example", "/api/paywalls/pw_x")
    expect(headers["access-control-allow-origin"]).toBe("*")
    expect(headers["access-control-expose-headers"]).toContain("X-RateLimit-Remaining")
  })

  it("lets only the consoles' origins read console routes", async () => {
    const stranger = await from("https://evil.example", "/api/console/paywalls")
    expect(stranger.headers["access-control-allow-origin"]).not.toBe("https://evil.example")
    expect(stranger.headers["access-control-allow-origin"]).not.toBe("*")
    const console = await from("https://console.example", "/api/console/paywalls")
    expect(console.headers["access-control-allow-origin"]).toBe("https://console.example")
  })

  it("lets no other origin read the sandbox's own routes, nor ask by a preflight", async () => {
    for (const method of ["GET", "OPTIONS"] as const) {
      const headers = { origin: "https://console.example", "access-control-request-method": "POST" }
      const answer = await service.call("GET", "/sandbox/clock", undefined, { method, headers })
      expect(answer.headers).not.toHaveProperty("access-control-allow-origin")
    }
  })

  it("answers an OPTIONS that is no preflight, and not with an error of another shape", async () => {
    const { status } = await service.call("GET", "/api/paywalls/pw_x", undefined, { method: "OPTIONS" })
    expect(status).toBe(204)
  })

  it("answers a preflight without a token", async () => {
    const preflight = {
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization,content-type",
    }
    const { status, headers } = await service.call("GET", "/api/console/paywalls", undefined, {
      method: "OPTIONS",
      headers: { origin: "https://console.example", ...preflight },
    })
    expect(status).toBe(204)
    expect(headers["access-control-allow-origin"]).toBe("https://console.example")
    for (const verb of ["PUT", "PATCH", "DELETE"]) expect(headers["access-control-allow-methods"]).toContain(verb)
  })
})

describe("health", () => {
  it("/healthz answers as long as the process does", async () => {
    expect(await service.call("GET", "/healthz")).toMatchObject({ status: 200, body: { status: "ok" } })
  })

  it("an answer that waits when the stop begins closes its connection", async () => {
    const draining = new AbortController()
    const tokens = tokenIssuer(service.issuer.issuer, AUDIENCE)
    const app = openApp(service.ctx, tokens, undefined, draining.signal)
    app.addHook("preHandler", async () => draining.abort())
    const answer = await fetch(`${await app.listen({ host: "127.0.0.1", port: 0 })}/docs/errors`)
    expect([answer.status, answer.headers.get("connection")]).toEqual([200, "close"])
    await app.close()
  })

  it("what comes on an open connection during a stop is answered 503, and /healthz 200; then it is closed", async () => {
    const second = async (path: string) => {
      const app = openApp(service.ctx, tokenIssuer(service.issuer.issuer, AUDIENCE))
      const closing = Promise.withResolvers<void>()
      app.addHook("preHandler", async ({ url }) => (url === "/docs/errors" ? await closing.promise : undefined))
      const socket = connect(Number(new URL(await app.listen({ host: "127.0.0.1", port: 0 })).port), "127.0.0.1")
      let answers = ""
      socket.setEncoding("utf8").on("data", text => {
        answers += text
      })
      const began = once(app.server, "request")
      for (const each of ["/docs/errors", path]) socket.write(`GET ${each} HTTP/1.1\r\nHost: a\r\n\r\n`)
      await began
      const closed = app.close()
      closing.resolve()
      await Promise.all([closed, once(socket, "close")])
      const [head = "", body = ""] = `${answers.split(/(?=HTTP\/1\.1 )/)[1]}`.toLowerCase().split("\r\n\r\n")
      expect(head).toContain("connection: close")
      return [head.split(" ")[1], head.match(/(?<=retry-after: )\d+/)?.[0], JSON.parse(body)]
    }
    const requestId = expect.stringMatching(/^[0-9a-f-]{36}$/)
    const message = expect.stringContaining("the process is stopping")
    expect(await second("/api/nowhere")).toEqual(["503", "1", { error: "not_ready", message, requestid: requestId }])
    expect(await second("/healthz")).toEqual(["200", undefined, { status: "ok" }])
  })

  it("probes leave no line in the log, whatever they are answered", async () => {
    const lines: string[] = []
    const log = openLog("info", { write: line => void lines.push(line) })
    const app = openApp({ ...service.ctx, log }, tokenIssuer(service.issuer.issuer, AUDIENCE))
    for (const url of ["/healthz", "/readyz", "/metrics", "/nowhere"]) await app.inject({ method: "GET", url })
    await vi.waitUntil(() => lines.length > 0)
    await app.close()
    expect(lines.map(line => JSON.parse(line))).toMatchObject([{ msg: "request", level: "info", status: 404 }])
  })

  it("/readyz asks once a second, is ready whatever a worker does, and names what is missing", async () => {
    // The second for which an answer is kept is this clock's alone, however long the test takes.
    const atMs = service.ctx.now().getTime()
    const clock = vi.spyOn(service.ctx, "now").mockImplementation(() => new Date(atMs))
    const setClock = (ms: number) => clock.mockImplementation(() => new Date(atMs + ms))
    const missing = { status: 200, body: { status: "ready", alarms: [expect.stringContaining("base-sepolia")] } }
    expect(await service.call("GET", "/readyz")).toMatchObject(missing)
    const looked = { looked_at: service.ctx.now(), run_at: service.ctx.now() }
    await service.ctx.db
      .insertInto("cursors")
      .values({
        chain_id: 84532,
        block_number: 1n,
        block_hash: `0x${"1".repeat(64)}` as never,
        finalized_number: 0n,
        ...looked,
      })
      .execute()
    // The database is queried at most once a second.
    expect(await service.call("GET", "/readyz")).toMatchObject(missing)
    setClock(1_000)
    expect(await service.call("GET", "/readyz")).toMatchObject({ status: 200, body: { status: "ready", alarms: [] } })
    setClock(3_601_000)
    expect(await service.call("GET", "/readyz")).toMatchObject(missing)
    clock.mockRestore()
  })

  it("/metrics requires the token", async () => {
    const ask = (authorization?: string) =>
      service.call("GET", "/metrics", undefined, { headers: authorization ? { authorization } : {} })
    for (const wrong of [undefined, "Bearer m-toke", "Bearer m-tokens", "m-token"])
      expect((await ask(wrong)).status).toBe(401)
    const { status, body } = await ask("Bearer m-token")
    expect(status).toBe(200)
    expect(body).toContain('sluice_http_request_seconds_count{method="GET",route="/healthz",status="200"}')
    const without = await startService()
    expect((await without.call("GET", "/metrics")).status).toBe(404)
    await without.stop()
  })
})

describe("limits", () => {
  const limits = { ...noLimits, console: 4, paywallVerify: 3, public: 6 }

  it("count the console by subject, everything else by address, errors too", async () => {
    const limited = await startService({ settings: { limits } })
    try {
      const settings = (as?: string) =>
        limited.call("GET", "/api/console/settings", undefined, as === undefined ? {} : { as })
      const statuses = async (n: number, ask: () => Promise<{ status: number }>) => {
        const all: number[] = []
        for (let i = 0; i < n; i++) all.push((await ask()).status)
        return all
      }
      expect(await statuses(5, () => settings("alice"))).toEqual([200, 200, 200, 200, 429])
      expect((await settings("bob")).status).toBe(200)
      // Without a valid token the address is counted, with all its other requests.
      expect(await statuses(2, () => settings())).toEqual([401, 401])
      expect(await statuses(2, () => limited.call("GET", "/api/paywalls/%zz"))).toEqual([400, 400])
      expect(await statuses(3, () => limited.call("GET", "/nowhere"))).toEqual([404, 404, 429])
      expect((await limited.call("GET", "/healthz")).headers).not.toHaveProperty("x-ratelimit-limit")
      // Not from a trusted proxy: the header changes nothing.
      const spoofed = await limited.call("GET", "/nowhere", undefined, {
        headers: { "x-forwarded-for": "203.0.113.9" },
      })
      expect(spoofed.status).toBe(429)
    } finally {
      await limited.stop()
    }
  })
})
