/**
 * A write to the API, with a wallet's signature where the server asks for one: it shows what is signed, signs, and sends the same
 * request again.
 */

import { askWallet } from "./asked.ts"
import { write } from "./client.ts"
import { type Detail, Failure, type TypedData } from "./failure.ts"

export interface Act {
  method: "POST" | "PUT" | "DELETE"
  path: string
  body?: Record<string, unknown>
}

/** Throws {@link Failure}, also where the person does not sign. */
export async function act<T>({ method, path, body }: Act): Promise<T> {
  const send = (more: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
    write<T>(method, path, body || Object.keys(more).length > 0 ? { ...body, ...more } : undefined, headers)
  try {
    return await send()
  } catch (error) {
    const asked = error instanceof Failure ? signable(error.details) : []
    if (!(error instanceof Failure) || asked.length === 0) throw error
    const signatures = await askWallet(error.code === "RETURN_APPROVAL_REQUIRED" ? "return" : "change", asked)
    if (error.code === "RETURN_APPROVAL_REQUIRED") return await send({ approval: approvalOf(asked, signatures) })
    return await send({}, { "Wallet-Signature": [String(asked[0]?.message.nonce), ...signatures].join(" ") })
  }
}

const signable = (details: Detail[]): TypedData[] => details.flatMap(({ typedData }) => typedData ?? [])

/** What a return is sent again with. */
export const approvalOf = (asked: TypedData[], signatures: string[]) => ({
  deadline: Number(asked[0]?.message.deadline),
  signature: signatures[0] ?? "",
})
