import { Type } from "typebox"
import { describe, expect, it } from "vitest"
import { ApiError } from "../errors.ts"
import { Described, Matching, MoneyInput, Nullable, Strict } from "./schemas.ts"
import { detailsOf, validatorFactory } from "./validation.ts"

/** The faults of a value, `path: message` each. */
function faultsOf(schema: object, value: unknown, httpPart = "body"): string[] {
  const validate = validatorFactory({ schema, httpPart })
  validate(value)
  return detailsOf(validate.errors ?? []).map(({ path, message }) => `${path}: ${message}`)
}

const one = (schema: object, value: unknown): string | undefined =>
  faultsOf(Strict({ a: schema as never }), { a: value })[0]

describe("a fault", () => {
  it.each([
    [Type.String(), 5, "must be text"],
    [Type.Number(), "5", "must be a number"],
    [Type.Integer(), 1.5, "must be a whole number"],
    [Type.Boolean(), "true", "must be true or false"],
    [Type.Object({}), [], "must be an object"],
    [Type.Array(Type.String()), {}, "must be a list"],
    [MoneyInput, null, "must be a number, or text that contains one"],
    [Nullable(Type.String()), 5, "must be text or null"],
    [Type.Enum(["day", "week"]), "hour", "must be one of: day, week"],
    [Type.Literal("day"), "hour", "must be day"],
    [Type.String({ minLength: 1 }), "", "must not be empty"],
    [Type.String({ minLength: 3 }), "ab", "must have at least 3 characters"],
    [Type.String({ maxLength: 2_000 }), "x".repeat(2_001), "must have at most 2,000 characters"],
    [Type.Array(Type.String(), { minItems: 2 }), ["x"], "must have at least 2 entries"],
    [Type.Array(Type.String(), { maxItems: 1 }), ["x", "y"], "must have at most 1 entry"],
    [Type.Record(Type.String(), Type.String(), { maxProperties: 1 }), { x: "", y: "" }, "must have at most 1 field"],
    [Type.Integer({ minimum: 1 }), 0, "must be at least 1"],
    [Type.Integer({ maximum: 1_000 }), 1_001, "must be at most 1,000"],
    [MoneyInput, 0, "must be above 0"],
    [MoneyInput, 1_000_001, "must be at most 1,000,000"],
    [Type.Integer({ exclusiveMaximum: 5 }), 5, "must be below 5"],
    [Matching("^[a-z]+$", "A lower-case word"), "A", "must be a lower-case word"],
    [Described(Matching("^a$", "The letter a"), "Where it goes"), "b", "must be the letter a"],
    [Type.Array(Type.String(), { uniqueItems: true }), ["x", "x"], "must not contain the same entry twice"],
  ])("of %j with %j is: %s", (schema, value, words) => {
    expect(one(schema, value)).toBe(`a: ${words}`)
  })

  it("names its place, at any depth and with any name", () => {
    const schema = Strict({
      list: Type.Array(Strict({ address: Type.String() })),
      map: Type.Record(Type.String(), Type.String()),
    })
    expect(faultsOf(schema, { list: [{ address: "x" }, { address: 5 }, {}], map: { "a/b~c": 5 } })).toEqual([
      "list.1.address: must be text",
      "list.2.address: is required",
      "map.a/b~c: must be text",
    ])
  })

  it("of an unknown field suggests a similar name, and none when none is close", () => {
    const schema = Strict({
      splitId: Type.Optional(Type.String()),
      list: Type.Optional(Type.Array(Strict({ percent: Type.Number() }))),
    })
    expect(faultsOf(schema, { spiltId: "spl_1", amount: 5, list: [{ percnt: 5, percent: 5 }] })).toEqual([
      "spiltId: is not a field of this request: did you mean `splitId`?",
      "amount: is not a field of this request; remove it",
      "list.0.percnt: is not a field of this request: did you mean `percent`?",
    ])
  })

  it.each([null, [], "text", 5])("of a body that is %j is the whole body's", body => {
    expect(faultsOf(Strict({}), body)).toEqual([": must be a JSON object"])
  })

  it("is reported with all others, up to a hundred", () => {
    expect(faultsOf(Strict({ a: Type.String(), b: Type.String() }), { a: 1, c: 1 })).toHaveLength(3)
    const many = Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`field${i}`, 1]))
    expect(faultsOf(Strict({}), many)).toHaveLength(100)
  })

  it("names a field whose name is long by its beginning", () => {
    const validate = validatorFactory({ schema: Strict({}), httpPart: "body" })
    validate({ ["x".repeat(200_000)]: 1 })
    expect(new ApiError("VALIDATION_ERROR", detailsOf(validate.errors ?? [])).details).toEqual([
      { path: `${"x".repeat(200)}…`, message: "This field is not a field of this request; remove it." },
    ])
  })
})

it("queries may be numbers in text, bodies may not", () => {
  const schema = Type.Object({ limit: Type.Integer() })
  expect(faultsOf(schema, { limit: "5" }, "querystring")).toEqual([])
  expect(faultsOf(schema, { limit: "five" }, "querystring")).toEqual(["limit: must be a whole number"])
  expect(faultsOf(schema, { limit: "5" })).toEqual(["limit: must be a whole number"])
})
