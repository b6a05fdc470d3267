/**
 * The forms of the things that an operator names, as a pattern and in words that complete "must be …". The service
 * checks them, and so does the command before it asks.
 */

/** A pattern for text in lower case, and its description. */
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
