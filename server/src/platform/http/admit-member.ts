/** Finds the membership that a console request is for. The person's role must have the right that the route needs. */
import type { FastifyRequest } from "fastify"
import { holdMember } from "../actor.ts"
import { checkFields } from "./authenticate.ts"
import { checkRight, isLimited, type Right } from "./rights.ts"
import type { MerchantAccess } from "./route-access.ts"

/**
 * Finds the membership that a person's request is for, and checks that its role has the right that the route needs.
 * Throws `ROLE_REQUIRED`, `MERCHANT_REQUIRED`, `SIGNUP_CLOSED`.
 */
export async function admitMember(request: FastifyRequest, access: MerchantAccess): Promise<void> {
  const { apiKey, subject, sessionId } = request
  if (!subject) {
    request.merchantId = apiKey?.merchantId
    if (apiKey) checkFields(apiKey, access, request.body)
    return
  }
  const member = await request.server.identities.memberOf(subject, { sessionId, merchantId: namedMerchant(request) })
  // Allowed up to the member's limit, against which the route counts the decision.
  const isCounted = access.isCounted && isLimited(member.role, access.right)
  if (!isCounted) checkRight(member, access.right)
  else if (!member.moneyPerDay) checkRight(member, access.right, " until an owner sets a daily limit for you")
  const { merchantId, personId, role } = member
  // The role is read again in each transaction of the request, because the role may change while the request runs.
  holdMember({ merchantId, personId, role })
  request.member = member
  request.merchantId = merchantId
}

/** The merchant that a request names. A browser opens streams and files itself, and can send no header with them. */
function namedMerchant({ method, headers, query }: FastifyRequest): string | undefined {
  const { merchant } = query as { merchant?: unknown }
  const named = headers["sluice-merchant"] ?? (method === "GET" || method === "HEAD" ? merchant : undefined)
  return named === undefined ? undefined : `${named}`
}

/** Throws `ROLE_REQUIRED` if a person's role lacks a right that only a part of the request needs. */
export function checkPart({ member }: Pick<FastifyRequest, "member">, right: Right): void {
  if (member) checkRight(member, right)
}
