/**
 * The forms of what an operator names, each as a pattern and in words that complete "must be …". The service checks
 * these forms, and the command checks them before it sends the request.
 */

/** A pattern for text in lower case, and a description of it. */
interface Form {
  pattern: string
  words: string
}

export const payoutIdForm: Form = {
  pattern: "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
  words: "The id of a payout, as `sluice wallet held` shows it",
}
export const hashForm: Form = {
  pattern: "^0x[0-9a-f]{64}$",
  words: "A transaction hash: 0x and 64 hexadecimal digits",
}
export const nonceForm: Form = { pattern: "^(0|[1-9][0-9]{0,15})$", words: "A nonce, a whole number" }
export const gweiForm: Form = { pattern: "^[1-9][0-9]{0,5}$", words: "A whole number of gwei from 1 to 999999" }
