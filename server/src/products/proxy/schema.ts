/** The wire contract of proxy bundles. */
import { type Static, Type } from "typebox"
import { SplitId } from "../../ledger/splits/schema.ts"
import {
  AddressText,
  Described,
  ListEnd,
  Matching,
  Money,
  Name,
  Nullable,
  Strict,
  Timestamp,
} from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"
import { methods } from "./match-route.ts"

/** The most routes per bundle, because each request is compared with all of them. */
const MAX_ROUTES = 100
export const MAX_HEADERS = 20

const Description = Nullable(Type.String({ maxLength: 2_000 }))
const Slug = Matching("^[a-z0-9-]{3,64}$", "3 to 64 lower-case letters, digits and hyphens")
const OriginUrl = Type.String({
  minLength: 1,
  maxLength: 2_048,
  description:
    "Where requests are sent: a publicly reachable https address, with the start of every path but no query; outside live mode http is allowed",
})
const OriginHeaders = Type.Record(
  Type.String({ maxLength: 100 }),
  Type.Unsafe<string | null>({ type: ["string", "null"], maxLength: 4_096 }),
  {
    // A change may remove as many headers as it adds.
    maxProperties: 2 * MAX_HEADERS,
    description: `Headers added to each request to the origin, such as its credential: at most ${MAX_HEADERS}. The values are encrypted and never shown again`,
  },
)
const OpenApi = Nullable(
  Type.Record(Type.String(), Type.Unknown(), { description: "An OpenAPI document for agents; at most 128 KB as JSON" }),
)
const OpenApiUrl = Nullable(Matching("^https?://", "An http(s) address", { maxLength: 2_048 }))
const Chain = Type.String({ maxLength: 32, description: "A network of this service; without it, the default network" })
const Method = Type.Enum([...methods], { type: "string", description: "A GET answers HEAD requests too" })
/** A separate type, because a route may be free. */
const Price = Type.Unsafe<number | string>({
  type: ["number", "string"],
  minimum: 0,
  maximum: 1_000_000,
  maxLength: 32,
  description: "The price of one call: a JSON number or a decimal string in whole tokens; 0 is free",
})

const RouteInput = Strict({
  method: Method,
  path: Type.String({
    minLength: 1,
    maxLength: 512,
    description: "A template such as `/v1/users/:id`, in which `:id` is one part of a path",
  }),
  price: Price,
  description: Type.Optional(Description),
})
const Routes = Type.Array(RouteInput, {
  maxItems: MAX_ROUTES,
  description: "What can be called, and at what price; nothing else reaches the origin",
})
export type RoutesInput = Static<typeof Routes>

export const BundleId = Type.Object({
  id: Type.String({ description: "The bundle's id", examples: ["bdl_tz4a98xxat96iws9zmbrgj3a"] }),
})

export const BundleCreate = Strict(
  {
    name: Name,
    originUrl: OriginUrl,
    routes: Routes,
    slug: Type.Optional(Slug),
    description: Type.Optional(Description),
    originHeaders: Type.Optional(OriginHeaders),
    listed: Type.Optional(Type.Boolean({ description: "Whether `/.well-known/x402` lists it; false by default" })),
    openapi: Type.Optional(OpenApi),
    openapiUrl: Type.Optional(OpenApiUrl),
    splitId: Type.Optional(SplitId),
    currency: Type.Optional(
      Type.String({ maxLength: 32, description: "The symbol of the network's settlement token" }),
    ),
    chain: Type.Optional(Chain),
  },
  {
    name: "Weather",
    slug: "weather",
    originUrl: "https://api.weather.example/v1",
    originHeaders: { authorization: "Bearer the-origin's-own-key" },
    routes: [
      { method: "GET", path: "/forecast/:city", price: "0.01", description: "Seven days" },
      { method: "GET", path: "/cities", price: 0 },
    ],
  },
)
export type BundleCreate = Static<typeof BundleCreate>

export const BundleChange = Strict(
  {
    name: Type.Optional(Name),
    originUrl: Type.Optional(
      Described(OriginUrl, "Where requests are sent. A new host gets none of the headers given for the old host"),
    ),
    originHeaders: Type.Optional(
      Described(OriginHeaders, "Headers to add or replace; null removes a header, and the rest stay"),
    ),
    routes: Type.Optional(Described(Routes, "All routes; they replace the previous routes")),
    slug: Type.Optional(Slug),
    description: Type.Optional(Description),
    active: Type.Optional(Type.Boolean({ description: "false: calls are answered 404" })),
    listed: Type.Optional(Type.Boolean()),
    openapi: Type.Optional(OpenApi),
    openapiUrl: Type.Optional(OpenApiUrl),
    splitId: Type.Optional(SplitId),
  },
  { name: "Weather, worldwide", routes: [{ method: "GET", path: "/forecast/:city", price: "0.02" }] },
)
export type BundleChange = Static<typeof BundleChange>

const route = {
  method: Type.String(),
  path: Type.String(),
  price: Money,
  description: Nullable(Type.String()),
}
const listed = {
  id: Type.String({ pattern: idPattern("bdl") }),
  slug: Type.String(),
  url: Type.String({ description: "The address to which the paths of the routes are added" }),
  name: Type.String(),
  description: Nullable(Type.String()),
  originUrl: Type.String(),
  currency: Type.String(),
  chain: Type.String(),
  active: Type.Boolean(),
  listed: Type.Boolean(),
  createdAt: Timestamp,
  updatedAt: Timestamp,
}
export const BundleList = Type.Object({ data: Type.Array(Type.Object(listed)), ...ListEnd })
export const BundleWhole = Type.Object({
  ...listed,
  merchantId: Type.String(),
  splitId: Nullable(Type.String()),
  originHeaders: Type.Array(Type.String(), {
    description: "The names of the added headers, never their values",
  }),
  openapi: Type.Unsafe<Record<string, unknown> | null>({ type: ["object", "null"], additionalProperties: true }),
  openapiUrl: Nullable(Type.String()),
  payTo: AddressText,
  routes: Type.Array(Type.Object(route)),
})
export const Deleted = Type.Object({ deleted: Type.Literal(true), id: Type.String() })

export const FailureList = Type.Object({
  data: Type.Array(
    Type.Object({
      paymentId: Type.String(),
      method: Type.String(),
      path: Type.String({ description: "Without the query, which may contain secrets" }),
      reason: Type.String({ description: "What the origin did in the last attempt" }),
      attempts: Type.Integer(),
      failedAt: Timestamp,
      servedAt: Described(
        Nullable(Timestamp),
        "When a repeated request was answered; null while the payer has no answer",
      ),
    }),
  ),
  ...ListEnd,
})

/** The description of a bundle that agents read. */
export const BundleDescription = Type.Object({
  id: Type.String(),
  slug: Type.String(),
  name: Type.String(),
  description: Nullable(Type.String()),
  url: Type.String({ description: "The address to which the paths of the routes are added" }),
  currency: Type.String(),
  chain: Type.String(),
  chainId: Type.Integer(),
  token: Type.Object({ address: AddressText, decimals: Type.Integer(), symbol: Type.String() }),
  payTo: AddressText,
  routes: Type.Array(Type.Object(route)),
  openapi: Type.Unsafe<Record<string, unknown> | null>({ type: ["object", "null"], additionalProperties: true }),
  openapiUrl: Nullable(Type.String()),
})
export type BundleDescription = Static<typeof BundleDescription>
