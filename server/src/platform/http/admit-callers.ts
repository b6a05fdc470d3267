/** Admits callers: finds out who they are, counts their requests, and refuses invalid credentials. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify"
import { ApiError } from "../errors.ts"
import { checkScope, credentialOf, type Identities, isFrom } from "./authenticate.ts"
import type { Limiter } from "./limit-requests.ts"
import { pathOf } from "./path.ts"
import { linkCaller } from "./trace-requests.ts"
import { whenReady } from "./when-ready.ts"

/** If its body took longer to arrive, a request is admitted again. Transactions check the credential in any case. */
const ADMITTED_MS = 1_000

const STOPPING =
  "Not ready: the process is stopping. Nothing was done: send the request again after the number of seconds in `Retry-After`."

/**
 * Finds out who is calling, counts the request against the caller's limits, and only then refuses invalid credentials.
 * During a stop, requests on open connections are refused.
 */
export function admitCallers(
  app: Pick<FastifyInstance, "addHook" | "after">,
  identities: Identities,
  { admit, isRefused }: Limiter,
  isStopping: () => boolean,
): void {
  // A caller may take a minute to send its body, and lose its credential meanwhile. This hook comes first, because
  // later ones act on behalf of the caller.
  app.addHook("preHandler", (request, reply, done) => {
    if (reply.elapsedTime < ADMITTED_MS || !(request.subject ?? request.apiKey)) return done()
    return admitAgain(identities, request)
  })
  // Runs after CORS has written its headers, so that a page can read a 401 or a 429. Preflights end there.
  app.after(() => {
    /** Whether the request continues; throws the error that refuses it. */
    const admitted = (request: FastifyRequest, reply: FastifyReply): boolean | Promise<boolean> => {
      const { access } = request.routeOptions.config
      const credential = credentialOf(access, pathOf(request))
      return whenReady(identities.authenticate(credential, request.headers, isRefused(request)), caller => {
        request.subject = caller.subject
        request.sessionId = caller.sessionId
        request.apiKey = caller.apiKey
        request.wallet = caller.wallet
        const subject = caller.subject && `${caller.subject.iss} ${caller.subject.sub}`
        // A request from an address that the key does not allow counts by address, so a stolen key can't use up the
        // key's limit.
        const apiKey = caller.apiKey && isFrom(caller.apiKey, request.ip) ? caller.apiKey : undefined
        return whenReady(admit(request, reply, { subject, apiKey }), isAdmitted => {
          if (!isAdmitted) return false
          if (caller.refusal !== undefined) throw caller.refusal
          if (caller.apiKey && !apiKey) throw new ApiError("IP_NOT_ALLOWED")
          // Runs before the body is read: most paths without a route have no limit either, and a client could send an
          // endless body.
          if (request.is404) throw new ApiError("NOT_FOUND")
          if (caller.apiKey) checkScope(caller.apiKey, access)
          if (caller.subject ?? caller.apiKey) linkCaller(request)
          return true
        })
      })
    }
    app.addHook("onRequest", (request, reply, done) => {
      if (isStopping() && pathOf(request) !== "/healthz") throw new ApiError("NOT_READY", undefined, STOPPING)
      const goesOn = admitted(request, reply)
      if (goesOn === true) done()
      // Fastify continues when the promise resolves, unless the request was answered.
      return goesOn instanceof Promise ? goesOn : undefined
    })
  })
}

/** Refuses a request whose credential is no longer valid, or now belongs to someone else. */
async function admitAgain(identities: Identities, request: FastifyRequest): Promise<void> {
  const credential = credentialOf(request.routeOptions.config.access, pathOf(request))
  const { refusal, apiKey, sessionId } = await identities.authenticate(credential, request.headers, false)
  if (refusal !== undefined) throw refusal
  if (apiKey?.id !== request.apiKey?.id || sessionId !== request.sessionId) throw new ApiError("UNAUTHORIZED")
  if (apiKey && !isFrom(apiKey, request.ip)) throw new ApiError("IP_NOT_ALLOWED")
  if (apiKey) checkScope(apiKey, request.routeOptions.config.access)
  request.apiKey = apiKey
}
