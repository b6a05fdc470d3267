import { expect, it } from "vitest"
import { openPlaces } from "./places.ts"

/** How many of `count` calls get a place. */
function taken(places: ReturnType<typeof openPlaces>, count: number, of: (nth: number) => [string, string], bytes = 0) {
  return Array.from({ length: count }, (_, nth) => places.take(...of(nth), bytes)).filter(leave => leave !== undefined)
}

it("no caller and no merchant takes all places, and all of them together take 500", () => {
  const places = openPlaces()
  expect(taken(places, 200, nth => [`mer_${nth}`, "caller"])).toHaveLength(50)
  expect(taken(places, 200, nth => ["mer_x", `${nth}`])).toHaveLength(100)
  const others = taken(places, 600, nth => [`mer_${nth}`, `${nth}`])
  expect(others).toHaveLength(350)
  // Twice each: a place is given back once.
  for (const leave of [...others, ...others]) leave?.()
  expect(taken(places, 600, nth => [`mer_${nth}`, `${nth}`])).toHaveLength(350)
})

it("bodies of all calls together have 64 MB", () => {
  const places = openPlaces()
  expect(taken(places, 100, nth => [`mer_${nth}`, `${nth}`], 1024 * 1024)).toHaveLength(64)
})
