/** A browser without a window that signs in to the console: it keeps cookies, and follows what it is answered. */
import { expect } from "vitest"
import { newSecret } from "../src/account/sessions/open-sessions.ts"
import { hashOf } from "../src/account/sessions/session.ts"
import type { Context } from "../src/platform/context.ts"
import { newId } from "../src/platform/ids.ts"
import { CLIENT, type TestIssuer } from "./issuer.ts"

/** The settings with which people sign in at the issuer of the tests, for a service at `url`. */
export const consoleAt = (url: string) => ({ baseUrl: url, consoleUrl: url, oidcClient: CLIENT })

export interface Visitor {
  cookies: Map<string, string>
  /** A request as a page of the console sends it; other headers may replace its own. Redirects are not followed. */
  fetch(path: string, init?: RequestInit): Promise<Response>
  /** The JSON that such a request is answered with. */
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  read(path: string, init?: RequestInit): Promise<any>
  /** The header with all cookies. */
  cookie(): string
}

/** A new browser at the origin of a service. */
export function newVisitor(origin: string): Visitor {
  const cookies = new Map<string, string>()
  const cookie = () => [...cookies].map(([name, value]) => `${name}=${value}`).join("; ")
  const visitor: Visitor = {
    cookies,
    cookie,
    read: async (path, init) => (await visitor.fetch(path, init)).json(),
    fetch: async (path, init = {}) => {
      const own = { cookie: cookie(), "sec-fetch-site": "same-origin" }
      const headers = { ...own, ...(init.headers as Record<string, string>) }
      const answer = await fetch(new URL(path, origin), { redirect: "manual", ...init, headers })
      for (const line of answer.headers.getSetCookie()) {
        const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? []
        if (/Max-Age=0;/.test(line)) cookies.delete(name)
        else cookies.set(name, value)
      }
      return answer
    },
  }
  return visitor
}

/** Goes to the provider and back to the address that it sends the browser to, which is returned and not yet opened. */
export async function goToProvider(visitor: Visitor, query = ""): Promise<string> {
  const begun = await visitor.fetch(`/console/sign-in${query}`)
  expect(begun.status, await begun.clone().text()).toBe(302)
  const sent = await fetch(begun.headers.get("location") ?? "", { redirect: "manual" })
  expect(sent.status).toBe(302)
  return sent.headers.get("location") ?? ""
}

/** Signs in as this subject of the issuer. */
export async function signIn(origin: string, issuer: TestIssuer, sub: string): Promise<Visitor> {
  const visitor = newVisitor(origin)
  issuer.person = { sub, claims: {}, header: {} }
  const answer = await visitor.fetch(await goToProvider(visitor), { headers: { "sec-fetch-site": "cross-site" } })
  expect(answer.status, await answer.clone().text()).toBe(200)
  return visitor
}

/** A browser at this origin with a session of this person, as a sign-in leaves it; the console must be at a loopback address. */
export async function withSession({ db, settings }: Context, origin: string, sub: string): Promise<Visitor> {
  const visitor = newVisitor(origin)
  const secret = newSecret()
  const now = new Date()
  const own = { iss: settings.oidcIssuer, sub, way: "provider", address: null, user_agent: null } as const
  const times = { created_at: now, last_seen_at: now, expires_at: new Date(now.getTime() + 3_600_000) }
  await db
    .insertInto("sessions")
    .values({ ...own, ...times, id: newId("ses"), hash: hashOf(secret) })
    .execute()
  visitor.cookies.set("sluice-dev", secret)
  return visitor
}

/** Sends a form of the page where a device's code is typed; returns the page that follows. */
export async function sendDeviceForm(
  visitor: Visitor,
  fields: Record<string, string>,
  headers: Record<string, string> = {},
): Promise<{ status: number; text: string }> {
  const body = new URLSearchParams(fields).toString()
  const sent = { "content-type": "application/x-www-form-urlencoded", ...headers }
  const answer = await visitor.fetch("/console/device", { method: "POST", headers: sent, body })
  return { status: answer.status, text: await answer.text() }
}
