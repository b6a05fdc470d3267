/**
 * Adds the parts of the document that follow from rules for every route: its errors, the headers of its answers, and
 * how to retry.
 */
import { STATUS_CODES } from "node:http"
import { type ErrorCode, errorTable, retryAfterOf } from "../errors.ts"
import { isUnlimited } from "../limits/buckets.ts"
import { credentialOf } from "./authenticate.ts"
import { hasRight, ROLES } from "./rights.ts"
import { accessOf } from "./route-access.ts"

declare module "fastify" {
  interface FastifyContextConfig {
    /** The errors of this route that no rule of {@link errorsOf} adds. */
    errors?: ErrorCode[]
    /** Whether the route accepts an `Idempotency-Key`. */
    idempotencyKey?: boolean
    /** Whether the route needs the payout wallet's signature while the merchant's wallet lock is on. */
    walletLock?: boolean
    /** Whether a request may have no body, although a body can have fields. */
    optionalBody?: boolean
  }
}

export interface RouteFacts {
  method: string
  /** As declared: `/api/paywalls/:id`. */
  url: string
  errors?: ErrorCode[] | undefined
  idempotencyKey?: boolean | undefined
  walletLock?: boolean | undefined
  optionalBody?: boolean | undefined
}

/** The field that {@link facts} adds to an operation for {@link completed}. */
const FACTS = "x-facts"

/** The facts of a route as a part of its schema, from which the document is generated. */
export const facts = (route: RouteFacts): Record<string, RouteFacts> => ({ [FACTS]: route })

/** Routes that don't answer with DATABASE_UNAVAILABLE; `/readyz` describes that failure itself. */
const withoutDatabase = ["/healthz", "/readyz", "/metrics"]

/** Every error that a route can answer with, in the order of the table. */
export function errorsOf({ method, url, errors, idempotencyKey, walletLock }: RouteFacts): ErrorCode[] {
  const access = accessOf(method, url)
  const credential = credentialOf(access, url)
  const isMember = credential?.startsWith("token") && access?.by !== "person"
  const right = access?.by === "member" ? access.right : undefined
  const byRule: { [code in ErrorCode]?: boolean | undefined } = {
    // Any query may contain text that can't be stored.
    VALIDATION_ERROR: true,
    INTERNAL_ERROR: true,
    // A parameter longer than any id matches nothing.
    NOT_FOUND: url.includes(":"),
    PAYLOAD_TOO_LARGE: method !== "GET",
    UNSUPPORTED_MEDIA_TYPE: method !== "GET",
    UNAUTHORIZED: credential !== undefined,
    FOREIGN_REQUEST: credential?.startsWith("token"),
    MERCHANT_REQUIRED: isMember,
    SIGNUP_CLOSED: isMember,
    ROLE_REQUIRED: right !== undefined && ROLES.some(role => !hasRight(role, right)),
    IDENTITY_UNAVAILABLE: credential?.startsWith("token"),
    SCOPE_REQUIRED: credential?.endsWith("key"),
    IP_NOT_ALLOWED: credential?.endsWith("key"),
    DATABASE_UNAVAILABLE: !withoutDatabase.includes(url),
    NOT_READY: url !== "/healthz",
    RATE_LIMITED: !isUnlimited(url),
    IDEMPOTENCY_IN_PROGRESS: idempotencyKey,
    IDEMPOTENCY_MISMATCH: idempotencyKey,
    WALLET_SIGNATURE_REQUIRED: walletLock,
    PAYOUT_ADDRESS_REQUIRED: walletLock,
    CHAIN_UNAVAILABLE: walletLock,
  }
  return codes.filter(code => byRule[code] || errors?.includes(code))
}

const codes = Object.keys(errorTable) as ErrorCode[]

interface Parameter {
  required?: boolean
  schema: { default?: unknown }
}

/** The part of an OpenAPI document that this file changes. */
interface Operation {
  [FACTS]?: RouteFacts
  parameters?: (Parameter | { $ref: string })[]
  requestBody?: { required?: boolean; content?: Record<string, { schema: { properties?: object } }> }
  responses: Record<string, object>
}
interface Document {
  paths?: Record<string, Record<string, Operation>>
  components?: Record<string, object>
}

const ref = (kind: string, name: string) => ({ $ref: `#/components/${kind}/${name}` })
const headerRefs = (names: (keyof typeof headerNames)[]) =>
  Object.fromEntries(names.map(name => [name, ref("headers", headerNames[name])]))

/** The document's short names for headers, because each answer has several. */
const headerNames = {
  "X-Request-Id": "id",
  "X-RateLimit-Limit": "limit",
  "X-RateLimit-Remaining": "left",
  "X-RateLimit-Reset": "reset",
  "Retry-After": "wait",
  "Idempotent-Replayed": "replay",
}
const limitHeaders = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"] as const

/** Adds to each operation what follows from the rules. */
export function completed<T extends object>(found: T): T {
  const document = structuredClone(found) as T & Document
  const responses: Record<string, object> = {}
  for (const item of Object.values(document.paths ?? {}))
    for (const [method, operation] of Object.entries(item)) {
      const { [FACTS]: route, ...rest } = operation
      if (!route) continue
      item[method] = { ...rest, ...complete(rest, route) }
      for (const codes of byStatus(errorsOf(route))) responses[nameOf(codes)] = errorResponse(codes)
    }
  const { schemas, ...components } = document.components ?? {}
  const parts = {
    schemas: { ...schemas, ...sharedSchemas },
    responses,
    headers,
    examples: Object.fromEntries(codes.map(code => [code, { value: exampleOf(code) }])),
    parameters: { idempotencyKey, merchant, walletSignature },
  }
  return { ...document, components: { ...components, ...parts } }
}

function complete(operation: Operation, route: RouteFacts): Partial<Operation> {
  const { requestBody, responses } = operation
  // Fastify's plugin marks every body as required, and every parameter with a default. Here the body of a DELETE, or
  // one without fields, is never required.
  const isNeeded = route.method !== "DELETE" && !route.optionalBody && hasFields(requestBody)
  const body = requestBody && { requestBody: { ...requestBody, required: isNeeded } }
  const own = (operation.parameters ?? []).map(each =>
    "schema" in each && each.schema.default !== undefined ? { ...each, required: false } : each,
  )
  const names = ["X-Request-Id", ...(isUnlimited(route.url) ? [] : limitHeaders)] as const
  const also = route.idempotencyKey ? (["Idempotent-Replayed"] as const) : []
  const good = Object.entries(responses).map(([status, response]) => {
    const described = { description: STATUS_CODES[status], headers: headerRefs([...names, ...also]) }
    return [status, { ...response, ...described }] as const
  })
  const bad = byStatus(errorsOf(route)).map(codes => [statusOf(codes), ref("responses", nameOf(codes))] as const)
  const access = accessOf(route.method, route.url)
  const headers = [
    ...(access?.by === "member" ? ["merchant"] : []),
    ...(route.idempotencyKey ? ["idempotencyKey"] : []),
    ...(route.walletLock ? ["walletSignature"] : []),
  ]
  const parameters = [...own, ...headers.map(name => ref("parameters", name))]
  return {
    ...(parameters.length > 0 ? { parameters } : {}),
    ...body,
    responses: { ...Object.fromEntries(good), ...Object.fromEntries(bad) },
  }
}

const hasFields = (body: Operation["requestBody"]): boolean =>
  Object.keys(body?.content?.["application/json"]?.schema.properties ?? {}).length > 0
const byStatus = (all: ErrorCode[]): ErrorCode[][] =>
  Object.values(Object.groupBy(all, code => errorTable[code].status))
const statusOf = ([code = "INTERNAL_ERROR"]: ErrorCode[]): number => errorTable[code].status
/** A response is stored once for all routes that have the same codes with a status. */
const nameOf = (codes: ErrorCode[]): string => codes.join(".")

function errorResponse(codes: ErrorCode[]): object {
  const isLimit = codes.includes("RATE_LIMITED")
  const hasRetry = isLimit || codes.some(code => code === "IDEMPOTENCY_IN_PROGRESS" || retryAfterOf(code) !== undefined)
  const narrowed = { properties: { error: { enum: codes } } }
  const examples = codes.map(code => [code, ref("examples", code)] as const)
  return {
    description: codes.map(code => `\`${code}\``).join(", "),
    headers: headerRefs(["X-Request-Id", ...limitHeaders, ...(hasRetry ? (["Retry-After"] as const) : [])]),
    content: {
      "application/json": {
        schema: isLimit ? ref("schemas", "RateLimited") : { ...ref("schemas", "Error"), ...narrowed },
        examples: Object.fromEntries(examples),
      },
    },
  }
}

const REQUEST_ID = "3f0c2d5e-7a41-4b8e-9c55-0d6f1a2b3c4d"

function exampleOf(code: ErrorCode): object {
  const error = { error: code, message: errorTable[code].message, requestId: REQUEST_ID }
  if (code === "VALIDATION_ERROR")
    return { ...error, details: [{ path: "price", message: "`price` must be above 0." }] }
  return code === "RATE_LIMITED" ? { ...error, retryAfter: 12 } : error
}

const text = (description: string) => ({ type: "string", description })

const sharedSchemas = {
  Error: {
    type: "object",
    required: ["error", "message", "requestId"],
    properties: {
      error: { type: "string", enum: codes, description: "The error code, for programs" },
      message: text("What went wrong and what to do, for people"),
      requestId: text("Identifies the request in the service's log"),
      details: {
        type: "array",
        description: "Each fault of the input",
        items: {
          type: "object",
          required: ["path", "message"],
          properties: {
            path: text("Dotted, such as `recipients.0.address`; empty for the whole body"),
            message: text("What is wrong with the field and what to do, as a sentence for people"),
            typedData: {
              type: "object",
              description:
                "With `WALLET_SIGNATURE_REQUIRED` and `RETURN_APPROVAL_REQUIRED`: the EIP-712 data that the wallet must sign",
            },
          },
        },
      },
    },
  },
  RateLimited: {
    type: "object",
    required: ["error", "message", "retryAfter", "requestId"],
    properties: {
      error: { type: "string", enum: ["RATE_LIMITED"] },
      message: text("What went wrong and what to do, for people"),
      retryAfter: { type: "integer", description: "Seconds to wait" },
      requestId: text("Identifies the request in the service's log"),
    },
  },
}

const header = (type: string, description: string) => ({ description, schema: { type } })

const headers = {
  id: header("string", "The request's id: the caller's `X-Request-Id` if it is acceptable, otherwise a new one"),
  limit: header("integer", "Requests per minute that the limit closest to exhaustion allows"),
  left: header("integer", "Requests left under that limit"),
  reset: header("integer", "Unix time in seconds at which the limit allows one more request"),
  wait: header("integer", "Seconds to wait before trying the same request again"),
  replay: header("string", "`true` if this repeats the first request's answer"),
}

const merchant = {
  name: "Sluice-Merchant",
  in: "header",
  required: false,
  description:
    "The id of the merchant that the request is for. People who are members of several merchants must send it. If a browser can't send a header, a GET accepts `?merchant=` instead.",
  schema: { type: "string" },
}

const walletSignature = {
  name: "Wallet-Signature",
  in: "header",
  required: false,
  description:
    "Needed while the wallet lock is on: the nonce, a space, and the payout wallet's signature of the data that `WALLET_SIGNATURE_REQUIRED` returned for the same request. Switching the lock on needs the signature of every payout address, separated by spaces.",
  schema: { type: "string" },
}

const idempotencyKey = {
  name: "Idempotency-Key",
  in: "header",
  required: false,
  description:
    "Makes retries safe: for 24 hours, requests with the same key and body get the first answer and take effect once. An answer with a secret is kept for one hour, only for its caller.",
  schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[!-~]+$" },
}
