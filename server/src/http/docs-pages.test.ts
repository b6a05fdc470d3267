import Fastify from "fastify"
import { expect, it } from "vitest"
import { docsPages } from "./docs-pages.ts"
import type { Server } from "./server.ts"

it("a page that could not be rendered is tried again for the next caller", async () => {
  const app = Fastify()
  const document = { openapi: "3.1.0", info: { title: "T", version: "1" }, paths: {} }
  const documents = [undefined as unknown as object, document]
  docsPages(app as unknown as Server, () => documents.shift() ?? (undefined as unknown as object))
  expect((await app.inject("/docs/json")).statusCode).toBe(500)
  expect((await app.inject("/docs/json")).json()).toEqual(document)
  await app.close()
})
