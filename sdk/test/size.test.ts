// What a page or a worker loads: bundled, minified and compressed, within its budget.
import { brotliCompressSync } from "node:zlib"
import { rolldown } from "rolldown"
import { expect, it } from "vitest"

const KB = 1_024

it.each([
  ["index", 12 * KB],
  ["webhooks", 3 * KB],
  ["money", KB],
])("%s is at most %i bytes, and imports nothing", async (name, most) => {
  const bundle = await rolldown({ input: new URL(`../src/${name}.ts`, import.meta.url).pathname, platform: "neutral" })
  const { output } = await bundle.generate({ format: "esm", minify: true, codeSplitting: false })
  expect(output.map(({ fileName }) => fileName)).toEqual([`${name}.js`])
  const [chunk] = output
  expect([...chunk.imports, ...chunk.dynamicImports]).toEqual([])
  expect(brotliCompressSync(chunk.code).length).toBeLessThanOrEqual(most)
})

it("React's button is at most 2 KB, and imports React alone", async () => {
  const input = new URL("../../react/index.js", import.meta.url).pathname
  const bundle = await rolldown({ input, platform: "neutral", external: ["react"] })
  const { output } = await bundle.generate({ format: "esm", minify: true })
  expect(output[0].imports).toEqual(["react"])
  expect(brotliCompressSync(output[0].code).length).toBeLessThanOrEqual(2 * KB)
})
