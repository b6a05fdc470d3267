import fc from "fast-check"
import { expect, it } from "vitest"
import { accentOn, accentStyle, contrastOf } from "./accent.ts"

const channel = fc.integer({ min: 0, max: 255 })
const color = fc
  .tuple(channel, channel, channel)
  .map(parts => `#${parts.map(part => part.toString(16).padStart(2, "0")).join("")}`)

it("every colour can be read as text, on its button, and the button stands out from the card, light and dark", () => {
  const surfaces = { light: ["#f1f2f5", "#f4f5f7", "#ffffff"], dark: ["#20242c", "#0d0f13", "#171a20"] } as const
  fc.assert(
    fc.property(color, fc.constantFrom("light" as const, "dark" as const), (chosen, look) => {
      const { accent, button, onButton, edge } = accentOn(look, chosen)
      expect(button).toBe(chosen)
      expect(contrastOf(onButton, button)).toBeGreaterThanOrEqual(4.5)
      for (const surface of surfaces[look]) expect(contrastOf(accent, surface)).toBeGreaterThanOrEqual(4.5)
      expect(contrastOf(edge, surfaces[look][2])).toBeGreaterThanOrEqual(3)
    }),
    { numRuns: 2_000 },
  )
})

it("a colour that can be read stays as it is", () => {
  expect(accentOn("light", "#1b4fd8")).toMatchObject({ accent: "#1b4fd8", edge: "#1b4fd8", onButton: "#ffffff" })
  expect(accentOn("dark", "#ffd400")).toMatchObject({ accent: "#ffd400", edge: "#ffd400", onButton: "#000000" })
  expect(contrastOf("#000000", "#ffffff")).toBeCloseTo(21)
})

it("nothing but a colour becomes a style", () => {
  expect(accentStyle("#1b4fd8")).toMatch(/^:root\{--accent:#1b4fd8;/)
  for (const text of [null, "", "#1b4fd", "red", "#1b4fd8}*{display:none", "#1B4FD8</style>"])
    expect(accentStyle(text)).toBe("")
})
