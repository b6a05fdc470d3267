import { once } from "node:events"
import { connect } from "node:net"
import { expect, it } from "vitest"
import { freePort } from "../../../test/e2e/program.ts"
import { defaultBounds } from "./connections.ts"
import { openStartupServer } from "./startup-server.ts"

it("the server of the start holds no more connections than the API does, and keeps answering", async () => {
  const port = await freePort()
  const bounds = { ...defaultBounds, connections: 2 }
  const server = await openStartupServer({ host: "127.0.0.1", port }, "PORT", bounds)
  const open = async () => {
    const socket = connect(port, "127.0.0.1").on("error", () => undefined)
    await once(socket, "connect")
    return socket
  }
  const idle = [await open(), await open()] as const
  const closed = once(idle[0].resume(), "close")
  const third = await open()
  await closed
  const answer = await fetch(`http://127.0.0.1:${port}/healthz`)
  expect([answer.status, await answer.json()]).toEqual([200, { status: "ok" }])
  for (const socket of [...idle, third]) socket.destroy()
  await server.close()
})
