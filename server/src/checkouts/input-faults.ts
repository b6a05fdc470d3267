/** What can be wrong with the fields of a checkout or link beyond their schema. Pure. */
import type { ErrorDetail } from "../errors.ts"

const METADATA_BYTES = 4_096

/** What is wrong with a session's metadata. */
export const metadataFaults = (metadata: unknown): ErrorDetail[] =>
  metadata && Buffer.byteLength(JSON.stringify(metadata)) > METADATA_BYTES
    ? [{ path: "metadata", message: "must be at most 4 KB as JSON" }]
    : []

/** What is wrong with the address to which the payer is sent back. The URL parser leaves line ends and tabs out without a word. */
export const redirectFaults = (redirectUrl: string | null | undefined): ErrorDetail[] =>
  redirectUrl && (!URL.canParse(redirectUrl) || /[\s\p{Cc}]/u.test(redirectUrl))
    ? [{ path: "redirectUrl", message: "must be a valid http(s) address" }]
    : []
