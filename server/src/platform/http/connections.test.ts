import { once } from "node:events"
import { type IncomingMessage, type RequestListener, type ServerOptions, ServerResponse } from "node:http"
import { type AddressInfo, connect, type Socket } from "node:net"
import { Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { setImmediate } from "node:timers/promises"
import { afterEach, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { refuseBroken } from "./client-errors.ts"
import { boundedConnections, connectionsFor, defaultBounds } from "./connections.ts"
import { type Bounds, keepOpen } from "./held-connections.ts"

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

/** A server with these limits; `dropped` lists why connections were closed. */
async function serve(
  own: Partial<Bounds>,
  listener: RequestListener,
  held = 0,
  options: Omit<ServerOptions, "requireHostHeader" | "keepAliveTimeout"> = {},
) {
  const dropped: string[] = []
  const bounded = boundedConnections(reason => dropped.push(reason), { ...defaultBounds, ...own })
  const server = bounded.open(
    (request, response) => {
      listener(request, response)
      bounded.hold(response, held)
    },
    { keepAliveTimeout: 72_000, requestTimeout: 60_000, ...options },
  )
  server.on("clientError", (error, socket) =>
    bounded.endInTurn(socket as Socket, () => refuseBroken(error, socket as Socket)),
  )
  await once(server.listen(0, "127.0.0.1"), "listening")
  closers.push(() => server.close())
  const open = async () => {
    const socket = connect((server.address() as AddressInfo).port, "127.0.0.1")
    closers.push(() => socket.destroy())
    socket.on("error", () => undefined)
    await once(socket, "connect")
    return socket
  }
  return { server, bounded, dropped, open }
}

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`

/** The statuses of all answers that come until the connection is closed. */
async function statusesOf(socket: Socket): Promise<string[]> {
  let read = ""
  socket.on("data", data => (read += data))
  // An error of the socket comes before its close.
  await new Promise(resolve => socket.once("close", resolve))
  return read.match(/(?<=HTTP\/1\.1 )\d+/g) ?? []
}

/** Reads until `text` arrived; returns everything that arrived. */
async function readUntil(socket: Socket, text: string): Promise<string> {
  let read = ""
  while (!read.includes(text)) read += (await once(socket, "data"))[0]
  return read
}

it("there are fewer connections in a small heap, whose headers alone could fill it", () => {
  expect([256, 512, 1_000, 4_096].map(mb => connectionsFor(mb * 1024 * 1024))).toEqual([1_024, 2_048, 4_000, 4_000])
})

describe("a connection", () => {
  it("is served one request at a time, in order", async () => {
    let running = 0
    let most = 0
    const { open } = await serve({}, (request, response) => {
      most = Math.max(most, ++running)
      void setImmediate().then(() => response.end(`<${request.url}>`, () => running--))
    })
    const socket = await open()
    socket.write(["/1", "/2", "/3", "/4"].map(get).join(""))
    const answers = await readUntil(socket, "</4>")
    expect(answers.match(/<\/\d>/g)).toEqual(["</1>", "</2>", "</3>", "</4>"])
    expect(most).toBe(1)
  })

  it("that pipelines more than the limit is closed, and none of the other requests are processed", async () => {
    let asked = 0
    const { open, dropped } = await serve({ pipelined: 3 }, () => asked++)
    const socket = await open()
    socket.resume().write(get("/").repeat(1_000))
    await once(socket, "close")
    expect({ asked, dropped }).toEqual({ asked: 1, dropped: ["pipelined"] })
  })

  it.each(["Host: a\r\n", ""])("is parsed no further than the request that closes it (%j)", async host => {
    let parsed = 0
    class Counted extends ServerResponse {
      constructor(request: IncomingMessage) {
        super(request)
        parsed++
      }
    }
    const { open } = await serve({ pipelined: 3 }, () => undefined, 0, {
      ServerResponse: Counted as typeof ServerResponse,
    })
    const socket = await open()
    socket.resume().write(`GET / HTTP/1.1\r\n${host}\r\n`.repeat(1_000))
    await once(socket, "close")
    // One request runs, three wait, and the next one closes the connection.
    expect(parsed).toBe(5)
  })

  it("whose body comes in chunks of one byte holds a few parts, and all of it arrives in order", async () => {
    const body = Array.from({ length: 30_000 }, (_, i) => String(i % 10)).join("")
    let parts = 0
    const { open } = await serve({}, (request, response) => {
      let read = ""
      request.on("data", part => {
        parts++
        read += part
      })
      request.on("end", () => response.end(read === body ? "<same>" : "<other>"))
    })
    const socket = await open()
    const chunks = [...body].map(byte => `1\r\n${byte}\r\n`).join("")
    socket.write(`POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`)
    expect(await readUntil(socket, ">")).toContain("<same>")
    expect(parts).toBeLessThan(300)
  })

  it("whose body comes a byte a read holds little more than the bytes", async () => {
    const parts: Buffer[] = []
    const { open } = await serve({}, (request, response) => {
      request.on("data", part => {
        if (parts.push(part) === 100) response.end("<end>")
        else socket.write("a")
      })
    })
    const socket = await open()
    socket.setNoDelay().write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\na")
    await readUntil(socket, "<end>")
    const stores = new Set(parts.map(({ buffer }) => buffer))
    expect([...stores].reduce((bytes, { byteLength }) => bytes + byteLength, 0)).toBeLessThan(3 * Buffer.poolSize)
  })

  it("whose body nobody reads is paused after what a stream holds, in chunks of one byte too", async () => {
    let held: IncomingMessage | undefined
    const { open } = await serve({}, request => {
      held = request
    })
    const socket = await open()
    socket.write("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    const sent = 3_000_000
    socket.write("1\r\na\r\n".repeat(sent))
    await until("the socket is paused", () => held?.socket.isPaused() ?? false)
    expect(held?.readableLength).toBeLessThan(sent / 4)
  })

  it("that is not read is closed first when answers hold too much memory, and others are served", async () => {
    const big = "x".repeat(8_000_000)
    const listener: RequestListener = (request, response) => response.end(request.url === "/big" ? big : "small")
    const { open, dropped } = await serve({ answerBytes: 2_500 }, listener, 1_000)
    const unread = [await open(), await open()]
    for (const [i, socket] of unread.entries()) {
      socket.write(get("/big"))
      // Waits for its first bytes, so that the next one starts after it.
      await once(socket, "readable")
      expect(dropped, `${i}`).toEqual([])
    }
    const reader = await open()
    for (let i = 0; i < 5; i++) {
      reader.write(get("/small"))
      expect(String((await once(reader, "data"))[0])).toContain("small")
    }
    expect(dropped).toEqual(["unread"])
    unread[0]?.resume()
    await once(unread[0] as Socket, "close")
    expect(unread[1]?.destroyed).toBe(false)
  })

  it("that reads slowly outlives one that reads nothing, however long its answer takes", async () => {
    const { open, dropped } = await serve(
      { answerBytes: 2_500 },
      (request, response) => {
        if (request.url === "/small") return void response.end("small")
        response.write("x".repeat(8_000_000))
        response.once("drain", () => response.write("<more>"))
      },
      1_000,
    )
    const [slow, unread, other] = [await open(), await open(), await open()] as const
    for (const socket of [slow, unread]) {
      socket.write(get("/long"))
      await once(socket, "readable")
    }
    await readUntil(slow, "<more>")
    other.write(get("/small"))
    await readUntil(other, "small")
    expect(dropped).toEqual(["unread"])
    unread.resume()
    await once(unread, "close")
    expect(slow.destroyed).toBe(false)
  })

  it("that holds the most request bytes is closed first", async () => {
    const post = (bytes: number) => `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${bytes}\r\n\r\n`
    const { server, open, dropped } = await serve(
      { requestBytes: 60_000, bodyBytes: 50_000 },
      (request, response) => void request.once("end", () => response.end("ended")).resume(),
    )
    const [honest, dripping, smaller] = [await open(), await open(), await open()] as const
    honest.write(post(100))
    await once(server, "request")
    dripping.resume().write(post(1_000_000))
    await once(server, "request")
    smaller.write(post(20_000))
    await once(dripping, "close")
    expect(dropped).toEqual(["unsent"])
    honest.write("x".repeat(100))
    expect(await readUntil(honest, "ended")).toContain("200 OK")
  })

  it("beyond the limit closes one that drips its body where none is idle", async () => {
    const { server, open, dropped } = await serve(
      { connections: 1 },
      (request, response) => void request.once("end", () => response.end("ended")).resume(),
    )
    const dripping = await open()
    dripping.resume().write("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    await once(server, "request")
    const next = await open()
    next.write(get("/"))
    expect(await readUntil(next, "ended")).toContain("200 OK")
    expect(dropped).toEqual(["too_many"])
  })

  it("beyond the limit closes the one that waits for longest where none is idle", async () => {
    let arrived = () => {}
    const { open, dropped } = await serve({ connections: 2 }, (request, response) => {
      if (request.url === "/small") response.end("small")
      else arrived()
    })
    const waiting: Socket[] = []
    for (let nth = 0; nth < 2; nth++) {
      const isWaiting = new Promise<void>(resolve => (arrived = resolve))
      const socket = await open()
      waiting.push(socket)
      socket.resume().write(get("/wait"))
      await isWaiting
    }
    const closed = once(waiting[0] as Socket, "close")
    const third = await open()
    third.write(get("/small"))
    await readUntil(third, "small")
    await closed
    expect({ dropped, other: waiting[1]?.destroyed }).toEqual({ dropped: ["too_many"], other: false })
  })

  it("whose caller has paid makes no room for others before its answer is complete", async () => {
    const { server, open, dropped } = await serve({ connections: 2 }, (request, response) => {
      if (request.url !== "/paid") return
      keepOpen(request.socket)
      response.write("first")
      server.once("finish it", () => response.end("last"))
    })
    const payer = await open()
    payer.write(get("/paid"))
    await readUntil(payer, "first")
    const wait = async () => {
      const other = await open()
      const arrived = once(server, "request")
      other.resume().write(get("/wait"))
      await arrived
    }
    for (let nth = 0; nth < 5; nth++) await wait()
    expect([dropped, payer.destroyed]).toEqual([Array(4).fill("too_many"), false])
    const ended = readUntil(payer, "last")
    server.emit("finish it")
    await ended
    // Its answer is complete, so it is idle like any other.
    const gone = once(payer.resume(), "close")
    await wait()
    await gone
  })

  it("whose caller reads nothing of its answer is closed after a time; one whose caller waits for an answer is not", async () => {
    const { open, dropped } = await serve({ stalledMs: 50 }, (request, response) => {
      if (request.url === "/big") response.end("x".repeat(8_000_000))
      else request.once("close", () => response.end("ended")).resume()
    })
    const waits = await open()
    waits.write("POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
    const unread = await open()
    unread.write(get("/big"))
    await once(unread, "readable")
    await until("one is closed", () => dropped.length > 0)
    expect(dropped).toEqual(["stalled"])
    waits.write("x")
    expect(await readUntil(waits, "ended")).toContain("ended")
  })

  it("beyond the limit closes the one that was idle for the longest time", async () => {
    const { open, dropped } = await serve({ connections: 2 }, (_request, response) => response.end("ok"))
    const first = await open()
    const second = await open()
    // Now the second has been idle for longer.
    first?.write(get("/"))
    await readUntil(first as Socket, "ok")
    const third = await open()
    second?.resume()
    await once(second as Socket, "close")
    third.write(get("/"))
    expect(await readUntil(third, "ok")).toContain("ok")
    expect(dropped).toEqual(["too_many"])
  })

  it("that never ends its request does not keep the server from closing", async () => {
    const { server, bounded, open, dropped } = await serve({ closingMs: 10 }, request => void request.resume())
    const socket = await open()
    socket.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
    await once(server, "request")
    bounded.close()
    await new Promise(resolve => server.close(resolve))
    expect(dropped).toEqual(["stopping"])
  })

  it("whose bytes under a stream are not HTTP is read no further, and refused once the stream has ended", async () => {
    let stream: ServerResponse | undefined
    const { server, open } = await serve({}, (_request, response) => {
      stream = response
      response.write("<first>")
    })
    const [[inner], socket] = await Promise.all([once(server, "connection"), open()])
    socket.write(get("/"))
    await readUntil(socket, "<first>")
    const statuses = statusesOf(socket)
    socket.write(Buffer.alloc(50_000_000, "garbage"))
    await until("the socket is paused", () => inner.isPaused())
    // Where it is not paused, all of it is read long before this many turns of the event loop.
    for (let turn = 0; turn < 5_000; turn++) await setImmediate()
    expect(inner.bytesRead).toBeLessThan(1_000_000)
    stream?.end("<last>")
    await statuses
    expect(inner.bytesRead).toBeLessThan(1_000_000)
  })

  it("whose bytes under a stream are not HTTP gets its answers in order where nothing follows", async () => {
    let stream: ServerResponse | undefined
    const { server, open } = await serve({}, (_request, response) => {
      if (stream) return void response.end("second")
      stream = response
      response.write("first")
    })
    const socket = await open()
    const statuses = statusesOf(socket)
    const refused = once(server, "clientError")
    socket.write(`${get("/1")}${get("/2")}BROKEN\r\n\r\n`)
    await refused
    stream?.end()
    socket.end()
    expect(await statuses).toEqual(["200", "200", "400"])
  })

  it("that asks for a tunnel gets the whole answers to its requests before, and is refused", async () => {
    const big = "x".repeat(8_000_000)
    const { open } = await serve({}, (request, response) => {
      if (request.url === "/small") return void response.end("small")
      void pipeline(Readable.from(big.match(/x{1,80000}/g) ?? []), response)
    })
    const connect = "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"
    for (const before of [[], ["/small"], ["/big", "/small"]]) {
      const socket = await open()
      let length = 0
      socket.on("data", ({ length: more }) => (length += more))
      const statuses = statusesOf(socket)
      socket.write(`${before.map(get).join("")}${connect}`)
      await once(socket, "end")
      socket.end()
      expect(await statuses).toEqual([...before.map(() => "200"), "400"])
      if (before.includes("/big")) expect(length).toBeGreaterThan(big.length)
    }
  })

  it.each(["ZZZ\r\n", ""])("whose request was answered gets no second answer for its body (%j)", async rest => {
    const { open } = await serve({}, (_request, response) => void response.writeHead(404).end("<none>"))
    const socket = await open()
    const statuses = statusesOf(socket)
    socket.write("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await readUntil(socket, "<none>")
    if (rest === "") socket.end()
    else socket.write(rest)
    expect(await statuses).toEqual(["404"])
  })

  it("whose request was answered before its body is served the next request, and refused what is not HTTP", async () => {
    const { open } = await serve({}, (request, response) => response.end(`<${request.url}>`))
    const socket = await open()
    const statuses = statusesOf(socket)
    socket.write("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
    await readUntil(socket, "</1>")
    socket.write(`abc${get("/2")}`)
    await readUntil(socket, "</2>")
    socket.write("BROKEN\r\n\r\n")
    expect(await statuses).toEqual(["200", "200", "400"])
  })

  it.each(["GET /late HTT", "POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"])(
    "whose request is late behind a long answer is refused, and not answered as well (%j)",
    async start => {
      const asked: (string | undefined)[] = []
      let long: ServerResponse | undefined
      const options = { requestTimeout: 50, headersTimeout: 50, connectionsCheckingInterval: 20 }
      const { server, open } = await serve(
        {},
        (request, response) => {
          asked.push(request.url)
          if (request.url === "/long") long = response
          else response.end("late")
        },
        0,
        options,
      )
      const socket = await open()
      const statuses = statusesOf(socket)
      const late = once(server, "clientError")
      socket.write(`${get("/long")}${start}`)
      await late
      await new Promise(resolve => socket.write(start.startsWith("GET") ? "P/1.1\r\nHost: a\r\n\r\n" : "abc", resolve))
      for (let turn = 0; turn < 100; turn++) await setImmediate()
      long?.end("long")
      expect(await statuses).toEqual(["200", "400"])
      expect(asked).toEqual(["/long"])
    },
  )
})
