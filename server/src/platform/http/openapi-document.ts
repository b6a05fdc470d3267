/** The parts of an OpenAPI document that are changed once the routes are in it. */

export type Json = Record<string, unknown>

interface Content {
  description?: string
  content?: { "application/json"?: { schema?: object; example?: object } }
}
export interface Parameter {
  name: string
  in: string
  schema: object
}
export interface Operation {
  operationId?: string
  "x-sdk"?: object
  parameters?: (Parameter | { $ref: string })[]
  requestBody?: Content
  responses?: Record<string, Content>
}
export type Operations = Record<string, Record<string, Operation>>
export interface Document {
  paths?: Operations
  webhooks?: Operations
  components?: { schemas?: Json; parameters?: Json }
}

/** The document with changed operations, including those of its webhooks. */
export function withOperations<T extends Document>(document: T, change: (operation: Operation) => Operation): T {
  const changed = (all: Operations = {}): Operations =>
    Object.fromEntries(
      Object.entries(all).map(([path, item]) => [
        path,
        Object.fromEntries(Object.entries(item).map(([method, each]) => [method, change(each)])),
      ]),
    )
  return { ...document, paths: changed(document.paths), webhooks: changed(document.webhooks) }
}

/** Each operation by its id, and the body sent for each event by the event's name. */
export function operationsOf({ paths = {}, webhooks = {} }: Document): Map<string, Operation> {
  const calls = Object.values(paths).flatMap(item => Object.values(item).map(each => [each.operationId ?? "", each]))
  const events = Object.entries(webhooks).flatMap(([event, item]) => Object.values(item).map(each => [event, each]))
  return new Map([...calls, ...events] as [string, Operation][])
}

/** The schema of a JSON body. */
export const jsonOf = (body: Content | undefined): Json | undefined =>
  body?.content?.["application/json"]?.schema as Json | undefined

/** The schema of the answer to a request that succeeded. */
export const goodJsonOf = ({ responses = {} }: Operation): Json | undefined =>
  jsonOf(Object.entries(responses).find(([status]) => /^20\d$/.test(status))?.[1])
