/**
 * In the sandbox `?dev=STATE` shows a page as it is while the API answers in a way that is rare: for the pictures, and for whoever
 * changes the page. `/dev/states` lists all.
 */
import type { Middleware } from "openapi-fetch"

export const devStates = ["loading", "empty", "error", "stale", "forbidden"] as const
type DevState = (typeof devStates)[number]

/** What the address of the page asks for. */
export const devState = (): DevState | undefined =>
  devStates.find(each => each === new URLSearchParams(location.search).get("dev"))

const failed = {
  error: [500, "INTERNAL_ERROR", "Something went wrong on our side. Try again."],
  forbidden: [403, "ROLE_REQUIRED", "Your role here, viewer, does not allow this."],
} as const

const failWith = (state: keyof typeof failed): Response => {
  const [status, error, message] = failed[state]
  return Response.json({ error, message, requestId: "9d1f0a34-8c1d-4f0a-b7f2-3b1de04c2a10" }, { status })
}

/** The addresses that were answered once. */
const answered = new Set<string>()

/** Answers in place of the API, or empties its lists. */
export const pretend: Middleware = {
  onRequest({ request }) {
    const state = request.method === "GET" ? devState() : undefined
    if (state === "loading") return new Promise(() => undefined)
    if (state === "error" || state === "forbidden") return failWith(state)
    if (state === "stale" && answered.has(request.url)) return failWith("error")
    return undefined
  },
  async onResponse({ request, response }) {
    answered.add(request.url)
    if (devState() !== "empty" || !response.ok) return undefined
    const body = await response.json()
    const isList = Array.isArray(body?.data)
    return Response.json(isList ? { ...body, data: [], total: 0, next: undefined } : body)
  },
}
