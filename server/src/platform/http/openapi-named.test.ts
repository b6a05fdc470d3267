/** What generators of clients need of the document: names, no repeats, and what SDKs call each operation. */
import { readFileSync } from "node:fs"
import { Ajv2020 } from "ajv/dist/2020.js"
import { describe, expect, it } from "vitest"
import { plainDocument } from "../../../test/plain-document.ts"
import type { Document, Json, Operation } from "./openapi-document.ts"
import { operationsOf } from "./openapi-document.ts"
import { named } from "./openapi-named.ts"
import { withSharedParameters } from "./openapi-parameters.ts"
import { places } from "./openapi-places.ts"

const read = (path: string) => readFileSync(new URL(`../../../../${path}`, import.meta.url), "utf8")
const text = read("docs/openapi.json")
const document = JSON.parse(text) as Document & { webhooks: Record<string, { post: Operation }> }
const calls = [...operationsOf({ ...document, webhooks: {} })]
const schemas = document.components?.schemas as Record<string, Json>

/** Every object in a value, with the name of the field that it is in. */
const objectsIn = (value: unknown, field = ""): [string, Json][] =>
  typeof value !== "object" || value === null
    ? []
    : [
        ...(Array.isArray(value) ? [] : [[field, value as Json] as [string, Json]]),
        ...Object.entries(value).flatMap(([name, each]) => (/^examples?$/.test(name) ? [] : objectsIn(each, name))),
      ]

describe("the document for generators", () => {
  it("has a name for every body of a request that succeeded, which openapi-typescript exports", () => {
    const types = read("tools/openapi/api.d.ts")
    const answers = calls.flatMap(([id, { responses = {} }]) =>
      Object.entries(responses).flatMap(([status, { content }]) => {
        const schema = content?.["application/json"]?.schema as { $ref?: string } | undefined
        return schema && status.startsWith("2") ? [{ id, name: schema.$ref?.split("/").at(-1) }] : []
      }),
    )
    expect(answers.length).toBeGreaterThan(100)
    for (const { id, name } of answers) {
      expect(name, id).toBeDefined()
      expect(types, id).toContain(`\nexport type ${name} = components['schemas']['${name}'];\n`)
    }
  })

  it("uses each name of the list", () => {
    expect(Object.keys(schemas)).toEqual([...Object.keys(places), "Error", "RateLimited"])
    // A schema that has two names is referred to by one of them only.
    const unused = Object.keys(places).filter(name => !text.includes(`"#/components/schemas/${name}"`))
    expect(unused).toEqual([])
  })

  it("has no enum with null", () => {
    const enums = objectsIn(document).flatMap(([_, { enum: values }]) => (Array.isArray(values) ? [values] : []))
    expect(enums.length).toBeGreaterThan(30)
    expect(enums.filter(values => values.includes(null))).toEqual([])
    expect(schemas.Checkout).toMatchObject({
      properties: { exception: { anyOf: [{ $ref: "#/components/schemas/CheckoutException" }, { type: "null" }] } },
    })
  })

  it("stays small, and of few shapes: a generator makes a class of each object and each enum", () => {
    // Raised by 8,000 for the overview and the balances, and by 40,000 for what explains: timelines, payouts, payers, search, filters; by 26,000 for values, reports, erasures and devices; by 15,000 for listeners; by 18,000 for changes, the catalogue of events, numbers of endpoints, and the log of requests; by 8,000 for receipts; by 4,000 for what is mailed; by 4,000 and three shapes for where 0G has receipts; by 2,000 and two shapes for totals; by 4,000 for amounts, time zones and fields of links.
    expect(Buffer.byteLength(JSON.stringify(document))).toBeLessThan(619_000)
    const shapes = objectsIn({ paths: document.paths, schemas }).filter(
      ([field, { type, enum: values }]) =>
        field !== "properties" && (values !== undefined || [type].flat().includes("object")),
    )
    // Raised from 270 for what keys can be given: caps, addresses, rolls; by 15 for the overview and the balances, by 41 for what explains, by 13 for devices, values and erasures, by 9 for listeners, by 16 for changes, the catalogue, numbers and the log of requests, by 3 for receipts, by 2 for totals, by one for callers of the log.
    expect(shapes.length).toBeLessThanOrEqual(383)
  })

  it("has an example of each event that its schema accepts", () => {
    const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false })
    const plain = plainDocument(document as never) as unknown as typeof document
    const events = Object.entries(plain.webhooks)
    expect(events).toHaveLength(19)
    for (const [event, { post }] of events) {
      const { schema = {}, example } = post.requestBody?.content?.["application/json"] ?? {}
      const closed = JSON.parse(JSON.stringify(schema), (_, value) =>
        value?.properties ? { ...value, additionalProperties: false } : value,
      )
      expect(ajv.validate(closed, example), `${event}: ${ajv.errorsText()}`).toBe(true)
    }
  })

  it("says what SDKs call each operation, which is unlike any other's", () => {
    const names = calls.map(([id, { "x-sdk": sdk }]) => {
      const { resource, method } = (sdk ?? {}) as { resource?: string; method?: string }
      expect([resource, method], id).toEqual([expect.stringMatching(/^[a-z]/), expect.stringMatching(/^[a-z]/)])
      return `${resource}.${method}`
    })
    expect(new Set(names).size).toBe(names.length)
    const of = (id: string) => operationsOf(document).get(id)?.["x-sdk"]
    expect(of("listCheckouts")).toEqual({ resource: "checkouts", method: "list", paginated: true, envelope: "data" })
    expect(of("listPaywalls")).toMatchObject({ paginated: true, envelope: "paywalls" })
    expect(of("listWebhooks")).toMatchObject({ paginated: true, envelope: "data.webhooks" })
    expect(of("readWebhook")).toEqual({ resource: "webhooks", method: "get", envelope: "data" })
    expect(of("readCheckout")).toEqual({ resource: "checkouts", method: "get" })
  })
})

const answering = (schema: object) => ({ responses: { 200: { content: { "application/json": { schema } } } } })
const color = { type: "string", enum: ["red", "blue"] }
const thing = { type: "object", properties: { type: color, maybe: { ...color, type: ["string", "null"] } } }

describe("named", () => {
  const nullable = { ...color, enum: [...color.enum, null], type: ["string", "null"], description: "Of the paint" }
  const fields = { thing, first: { ...thing, description: "The first" }, color: nullable, other: { type: "string" } }
  const found = { paths: { "/a": { get: { operationId: "a", ...answering({ type: "object", properties: fields }) } } } }
  const result = named(found as Document, { Thing: "a thing", Color: "a thing type", Gone: "b" })
  const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` })

  it("refers to the named schema wherever an equal one stands, with the place's own description", () => {
    const answer = answering({
      type: "object",
      properties: {
        thing: ref("Thing"),
        first: { ...ref("Thing"), description: "The first" },
        color: { anyOf: [ref("Color"), { type: "null" }], description: "Of the paint" },
        other: { type: "string" },
      },
    })
    expect(result.paths).toEqual({ "/a": { get: { operationId: "a", ...answer } } })
  })

  it("keeps a description with the stored schema only if every place has it", () => {
    const described = { ...color, description: "A color" }
    const of = (properties: object) =>
      named(
        { paths: { "/a": { get: { operationId: "a", ...answering({ type: "object", properties }) } } } } as Document,
        {
          Color: "a one",
        },
      )
    const same = of({ one: described, two: described })
    expect(same.components?.schemas).toEqual({ Color: described })
    expect(same.paths?.["/a"]?.get).toMatchObject(answering({ properties: { one: ref("Color"), two: ref("Color") } }))
    const differing = of({ one: described, two: color })
    expect(differing.components?.schemas).toEqual({ Color: color })
    const properties = { one: { ...ref("Color"), description: "A color" }, two: ref("Color") }
    expect(differing.paths?.["/a"]?.get).toMatchObject(answering({ properties }))
  })

  it("stores named schemas once, and skips a name whose route the service lacks", () => {
    const maybe = { anyOf: [ref("Color"), { type: "null" }] }
    expect(result.components?.schemas).toEqual({
      Thing: { type: "object", properties: { type: ref("Color"), maybe } },
      Color: color,
    })
  })

  it("names no schema that accepts other values", () => {
    const other = { ...thing, required: ["type"] }
    const two = { paths: { "/a": { get: { operationId: "a", ...answering({ anyOf: [thing, other] }) } } } }
    const { paths } = named(two as Document, { Thing: "a 0" })
    expect(paths?.["/a"]?.get?.responses).toEqual(answering({ anyOf: [ref("Thing"), other] }).responses)
  })
})

describe("withSharedParameters", () => {
  it("stores a parameter that three operations have once, and leaves others and those of paths where they are", () => {
    const limit = { name: "limit", in: "query", schema: { type: "integer" } }
    const id = { name: "id", in: "path", schema: { type: "string" } }
    const rare = { ...limit, description: "Few" }
    const paths = Object.fromEntries(
      ["a", "b", "c", "d"].map(name => [name, { get: { operationId: name, parameters: [id, limit] } }]),
    )
    const all = { ...paths, e: { get: { operationId: "e", parameters: [rare] } } }
    const { paths: shared, components } = withSharedParameters<Document>({ paths: all })
    expect(components).toEqual({ parameters: { limit } })
    expect(shared?.a?.get?.parameters).toEqual([id, { $ref: "#/components/parameters/limit" }])
    expect(shared?.e?.get?.parameters).toEqual([rare])
  })
})
