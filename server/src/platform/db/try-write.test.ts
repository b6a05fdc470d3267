import { expect, it } from "vitest"
import { UNWRITABLE, whyUnwritable } from "./try-write.ts"

it.each([
  ["53100", "the disk of the database is full, so nothing can be recorded"],
  ["25006", "the database is read-only, so nothing can be recorded"],
  ["58030", UNWRITABLE],
  ["42501", UNWRITABLE],
  ["57014", UNWRITABLE],
  // A limit of the user, a database that stops, and one that is gone.
  ["53400", undefined],
  ["57P01", undefined],
  ["ECONNREFUSED", undefined],
  ["EPIPE", undefined],
])("a trial that fails with %s says: %s", (code, words) => {
  expect(whyUnwritable({ code })).toBe(words)
  expect(whyUnwritable(new Error("a connection's", { cause: { code } }))).toBe(words)
})
