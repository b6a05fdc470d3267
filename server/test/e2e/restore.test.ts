// The restore drill, small: `script/bench restore` runs the same at full size, and times it.
import { describe, expect, it } from "vitest"
import { postgresBinaries } from "../postgres.ts"
import { drill } from "./restore-drill.ts"

describe.runIf(postgresBinaries())("a restored backup", () => {
  it("halts the wallet; after `adopt --all` and `resume` everyone is paid once, and the books are the chain's", async () => {
    // Half an hour of blocks.
    const times = await drill({ before: 6, meanwhile: 6, after: 12, blocks: 900, pauseMs: 1_000 })
    expect(Object.keys(times)).toEqual(["restored", "halted", "adopted", "resumed", "paid"])
  })
})
