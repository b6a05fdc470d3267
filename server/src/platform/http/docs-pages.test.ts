import { createRequire } from "node:module"
import Fastify from "fastify"
import { expect, it, vi } from "vitest"
import { errorTable } from "../errors.ts"
import { docsPages } from "./docs-pages.ts"
import type { Server } from "./server.ts"

const noSite = async () => undefined

it("a page that could not be rendered is tried again for the next caller", async () => {
  const app = Fastify()
  const document = { openapi: "3.1.0", info: { title: "T", version: "1" }, paths: {} }
  const documents = [undefined as unknown as object, document]
  docsPages(app as unknown as Server, () => documents.shift() ?? (undefined as unknown as object), noSite)
  expect((await app.inject("/docs/json")).statusCode).toBe(500)
  expect((await app.inject("/docs/json")).json()).toEqual(document)
  await app.close()
})

it("renders what is asked for: the YAML, which takes longest, only for those who want it, and once", async () => {
  // The same module as the plugin's: it requires it.
  const plugin = createRequire(createRequire(import.meta.url).resolve("@fastify/swagger"))
  const stringify = vi.spyOn(plugin("yaml"), "stringify")
  const app = Fastify()
  docsPages(
    app as unknown as Server,
    () => ({ openapi: "3.1.0", info: { title: "T", version: "1" }, paths: {} }),
    noSite,
  )
  for (const path of ["", "/", "/json", "/errors", "/static/swagger-ui.css"])
    expect((await app.inject(`/docs${path}`)).statusCode).toBe(200)
  expect(stringify).toHaveBeenCalledTimes(0)
  const both = await Promise.all([app.inject("/docs/yaml"), app.inject("/docs/yaml")])
  expect(both.map(({ body }) => body.startsWith("openapi: 3.1.0"))).toEqual([true, true])
  expect(stringify).toHaveBeenCalledTimes(1)
  await app.close()
})

it("has its own name, nobody's logo, and a list of every error", async () => {
  const app = Fastify()
  docsPages(
    app as unknown as Server,
    () => ({ openapi: "3.1.0", info: { title: "T", version: "1" }, paths: {} }),
    noSite,
  )
  const { body, headers } = await app.inject("/docs")
  expect(body).toContain("<title>Sluice API</title>")
  expect(body.match(/rel="icon"[^>]*/g)).toEqual(['rel="icon" href="data:,"'])
  expect(headers["content-security-policy"]).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self';/)
  // The other layout has the bar with the logo, and styles that the policy refuses.
  expect((await app.inject("/docs/static/swagger-initializer.js")).body).toContain('"layout":"BaseLayout"')
  const errors = (await app.inject("/docs/errors")).body
  for (const code of Object.keys(errorTable)) expect(errors).toContain(`<h2 id="${code}">`)
  expect(errors).toContain("<code>txHash</code> must be a transaction hash")
  await app.close()
})
