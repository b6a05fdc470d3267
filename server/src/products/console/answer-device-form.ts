/**
 * `/console/device`: a person types the code that a device shows, sees what the device asks for, and approves or
 * denies the request.
 */
import type { FastifyRequest } from "fastify"
import { decideDevice, type Waiting } from "../../account/devices/decide-device.ts"
import { sessionOf } from "../../account/sessions/open-sessions.ts"
import { isFromConsole } from "../../account/sessions/session.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { scopeTable } from "../../platform/http/rights.ts"
import { plainAddress } from "../../platform/limits/buckets.ts"
import { type Html, html } from "../pages/html.ts"
import { type ConsolePage, card, head, wordsBody } from "./console-page.ts"

const TITLE = "Sign a device in"
const decisions = new Map([
  ["approve", "approved"],
  ["deny", "denied"],
] as const)

/**
 * Returns the page that follows a submitted form. Throws `FOREIGN_REQUEST` for another site's form, `UNAUTHORIZED`
 * without a session.
 */
export async function answerDeviceForm(ctx: Context, request: FastifyRequest): Promise<ConsolePage> {
  // Nothing else proves where a form comes from: the page sends no referrer, so the browser sends no origin either.
  if (!isFromConsole(request.headers)) throw new ApiError("FOREIGN_REQUEST")
  const session = await sessionOf(ctx, request)
  if (!session)
    throw new ApiError("UNAUTHORIZED", undefined, "You are signed out. Sign in again, and type the code then.")
  const { code, does, merchant } = (request.body ?? {}) as Record<string, string | undefined>
  const decision = decisions.get(does as "approve" | "deny")
  const outcome = await decideDevice(ctx, request, session, { code, decision, merchantId: merchant })
  if ("refusal" in outcome) return codePage(ctx, session, outcome.refusal)
  if ("waiting" in outcome) return { title: TITLE, body: waitingBody(ctx, request, outcome.waiting, `${code}`) }
  const words =
    outcome.decided === "approved"
      ? "The device gets its key within a few seconds. You find the key in the list of API keys, where you can revoke it."
      : "The device gets no key. If you did not expect this request, someone else may have sent you its code."
  const title = outcome.decided === "approved" ? "The device is approved" : "The device is denied"
  return { title, body: wordsBody(title, words) }
}

/** The form for the code. `refusal` says what was wrong with the code that was typed before. */
export function codePage(ctx: Context, { sub }: Pick<Row<"sessions">, "sub">, refusal?: string): ConsolePage {
  const body = card(
    ctx.settings.mode === "sandbox",
    html`${head(TITLE, `You are signed in as ${sub}.`)}
<form method="post" action="/console/device" class="stack">
<div class="field"><label for="code">The code that the device shows</label>
<input id="code" name="code" class="money" required autofocus autocomplete="off" autocapitalize="characters" spellcheck="false" maxlength="16"${refusal !== undefined && NOTED}>
${refusal !== undefined && html`<p id="refusal" class="fault" role="alert">${refusal}</p>`}</div>
<button class="primary">Continue</button>
</form>
<p class="quiet center">Type only a code of a device that you use yourself. Support never sends you a code.</p>`,
  )
  return { title: TITLE, body }
}

const NOTED: Html = { markup: ' aria-invalid="true" aria-describedby="refusal"' }

function waitingBody(ctx: Context, { ip }: FastifyRequest, { device, merchants }: Waiting, code: string): Html {
  const fact = (name: string, value: string | Html) => html`<div class="long"><dt>${name}</dt><dd>${value}</dd></div>`
  const { host, address, scopes } = device
  const own = plainAddress(ip) ?? "unknown"
  const named = (each: Waiting["merchants"][number]) =>
    `${each.name === "" ? each.merchantId : each.name}, where your role is ${each.role}`
  const [only, ...others] = merchants
  return card(
    ctx.settings.mode === "sandbox",
    html`${head("Is this your device?", "It requests an API key to act for the merchant.")}
<dl class="facts">
${fact("Machine", host)}
${fact("Asked from", address ?? "an unknown address")}
${fact("Your address", own === address ? `${own}, the same` : own)}
${fact("It may", html`${scopes.map((scope, i) => html`${i > 0 && BREAK}${scope}: ${inPlainText(scopeTable[scope as keyof typeof scopeTable])}`)}`)}
${fact("For", "90 days, or until the key is revoked")}
${others.length === 0 && only && fact("Merchant", named(only))}
</dl>
<form method="post" action="/console/device" class="stack">
<input type="hidden" name="code" value="${code}">
${others.length > 0 && html`<div class="field"><label for="merchant">Merchant</label><select id="merchant" name="merchant">${merchants.map(each => html`<option value="${each.merchantId}">${named(each)}</option>`)}</select></div>`}
<button class="primary" name="does" value="approve">Approve</button>
<button class="secondary" name="does" value="deny">Deny</button>
</form>
<p class="quiet center">Deny it if you did not start this yourself a moment ago.</p>`,
  )
}

const inPlainText = (words: string): string => words.replaceAll("`", "")

const BREAK: Html = { markup: "<br>" }

/** The fields of a submitted form; if a field is repeated, its last value counts. */
export const formFields = (body: string): Record<string, string> => Object.fromEntries(new URLSearchParams(body))
