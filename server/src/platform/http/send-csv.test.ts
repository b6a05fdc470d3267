// Lists as files: with a byte-order mark for whoever asks for it.
import { expect, it } from "vitest"
import { startService } from "../../../test/service.ts"

it("begins each file with a byte-order mark where the request says so, and no other", async () => {
  const service = await startService()
  try {
    await service.merchant("shop")
    const files = Object.keys(service.document.paths).filter(path => path.endsWith(".csv"))
    expect(files.length).toBeGreaterThan(5)
    const read = async (path: string) => await service.call("GET", path, undefined, { as: "shop" })
    for (const path of files) {
      const plain = await read(path)
      const marked = await read(`${path}?bom=1`)
      expect([plain.status, marked.status]).toEqual([200, 200])
      expect(marked.body).toBe(`\ufeff${plain.body}`)
      expect((await read(`${path}?bom=yes`)).status).toBe(400)
    }
  } finally {
    await service.stop()
  }
})
