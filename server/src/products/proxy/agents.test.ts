import { Agent } from "undici"
import { expect, it } from "vitest"
import { openAgents } from "./agents.ts"

it("each merchant has its own agent, and the 500 that were used last are kept", async () => {
  const agents = openAgents(() => new Agent())
  const first = agents.of("mer_0")
  const others = Array.from({ length: 499 }, (_, nth) => agents.of(`mer_${nth + 1}`))
  expect(new Set([first, ...others]).size).toBe(500)
  expect(agents.of("mer_0")).toBe(first)
  agents.of("mer_500")
  expect([first, ...others].filter(({ closed }) => closed)).toEqual([others[0]])
  await agents.close()
  expect(first.destroyed).toBe(true)
})
