// What a merchant types into "What the payer is asked for" becomes names that the API takes, and is shown again as typed.
import fc from "fast-check"
import { expect, it } from "vitest"
import { fieldsOf, fieldsText } from "./payer-fields.tsx"

const FIELD_NAME = /^[a-zA-Z][a-zA-Z0-9_]{0,39}$/

it.each([
  ["Name, E-mail, Shipping address", ["Name", "email", "Shipping_address"]],
  ["name; e mail;\nVAT-ID,, ", ["name", "email", "VAT_ID"]],
  ["name, Name,  name ", ["name"]],
  [" , ;", []],
])("%j asks for %j", (text, names) => {
  expect(fieldsOf(text)).toEqual(names)
})

it("names are read back from what the form shows, so that saving it unchanged changes nothing", () => {
  const name = fc.stringMatching(/^[a-zA-Z][a-zA-Z0-9]{0,9}(_[a-zA-Z0-9]{1,9}){0,2}$/).filter(each => each !== "")
  fc.assert(
    fc.property(fc.uniqueArray(name, { maxLength: 20, selector: each => each.toLowerCase() }), names => {
      const read = fieldsOf(fieldsText(names))
      expect(read).toEqual([...new Set(names.map(each => (/^e_?mail$/i.test(each) ? "email" : each)))])
      for (const each of read) expect(each).toMatch(FIELD_NAME)
    }),
  )
})
