// Logos and the origins of sites as they are read; the pages that have them are in pages/pages.test.ts.
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { readOrigin } from "./change-branding.ts"
import { readLogo } from "./logo.ts"

/** Pictures of three by two pixels, as Chromium wrote them. */
const png =
  "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAYAAACddGYaAAAAEklEQVR4AWLa4ir/H4aZGJAAAAAA//+SrePiAAAABklEQVQDAHmRBkqc11m3AAAAAElFTkSuQmCC"
const jpeg =
  "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAFA3PEY8MlBGQUZaVVBfeMiCeG5uePWvuZHI////////////////////////////////////////////////////wAARCAACAAMDASIAAhEBAxEB/9oADAMBAAIRAxEAPwCABmf/2Q=="
const vp8 = "VlA4ICYAAABwAQCdASoDAAIAB0CWJaACdAFAAAD+2ibri5siKPbzmzt/yAAAAA=="
const vp8l = "VlA4TBEAAAAvAkAAAAfQotL2o/+BiOh/AAA="
const webp = (chunk: string) =>
  Buffer.concat([Buffer.from("RIFF....WEBP"), Buffer.from(chunk, "base64")]).toString("base64")
/** The extended format around one picture, with its flags: 0x02 is an animation. */
const extended = (flags: number, picture = vp8) => {
  const head = Buffer.from("VP8X\x0a\0\0\0\0\0\0\0\x02\0\0\x01\0\0", "latin1")
  head[8] = flags
  return webp(Buffer.concat([head, Buffer.from(picture, "base64")]).toString("base64"))
}
const url = (type: string, base64: string) => `data:image/${type};base64,${base64}`
const changed = (change: (bytes: Buffer) => void) => {
  const bytes = Buffer.from(png, "base64")
  change(bytes)
  return url("png", bytes.toString("base64"))
}

describe("a logo", () => {
  it("is a PNG, a JPEG or a WebP picture, by its bytes", () => {
    const pictures = [
      ["png", png],
      ["jpeg", jpeg],
      ["webp", webp(vp8)],
      ["webp", webp(vp8l)],
      ["webp", extended(0)],
    ] as const
    for (const [type, text] of pictures) {
      expect(readLogo(url(type, text))).toMatchObject({
        type: `image/${type}`,
        hash: expect.stringMatching(/^[\w-]{43}$/),
      })
      for (const other of ["png", "jpeg", "webp"].filter(each => each !== type))
        expect(readLogo(url(other, text))).toBe(`must match its type, image/${other}, and must not be animated`)
    }
  })

  it("is no document, no animation, not larger than 64 KB, and no picture of a billion pixels", () => {
    const svg = Buffer.from("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>").toString(
      "base64",
    )
    const form = "must be a PNG, JPEG or WebP image as a data: URL in base64"
    for (const text of [
      url("svg+xml", svg),
      url("gif", "R0lGODlh"),
      "https://shop.example/logo.png",
      url("png", "%00"),
    ])
      expect(readLogo(text)).toBe(form)
    expect(readLogo(url("png", svg))).toContain("must match its type")
    expect(readLogo(url("webp", extended(0x02)))).toBe("must match its type, image/webp, and must not be animated")
    const frames = Buffer.concat([Buffer.from("ANMF\x2e\0\0\0", "latin1"), Buffer.from(vp8, "base64")])
    expect(readLogo(url("webp", extended(0, frames.toString("base64"))))).toContain("not be animated")
    expect(readLogo(changed(bytes => bytes.write("acTL", 37, "latin1")))).toContain("not be animated")
    expect(readLogo(changed(bytes => bytes.writeUInt32BE(2_049, 16)))).toContain("2048 pixels")
    expect(readLogo(changed(bytes => bytes.writeUInt32BE(0, 20)))).toContain("2048 pixels")
    // Only the heads of files: the page would show an empty space.
    const cut = (type: string, base64: string, bytes: number, tail = "") =>
      readLogo(
        url(
          type,
          Buffer.concat([Buffer.from(base64, "base64").subarray(0, bytes), Buffer.from(tail, "hex")]).toString(
            "base64",
          ),
        ),
      )
    const end = "0000000049454e44ae426082"
    for (const [type, base64, bytes, tail] of [
      ["png", png, 34],
      ["png", png, 33, end],
      ["png", png, 33, `0000000049444154ffffffff${end}`],
      ["png", png, Buffer.from(png, "base64").length - 12],
      ["jpeg", jpeg, Buffer.from(jpeg, "base64").indexOf("ffda", 0, "hex")],
      ["webp", extended(0), 30],
    ] as const)
      expect([type, bytes, cut(type, base64, bytes, tail)]).toEqual([
        type,
        bytes,
        expect.stringContaining("must match its type"),
      ])
    // A fill byte before the frame. A decoder reads that frame's size; reading a length there would lead to another
    // frame.
    const hidden = Buffer.concat([
      Buffer.from("ffd8ffffc0001108", "hex"),
      Buffer.alloc(0xc000),
      Buffer.from(jpeg, "base64").subarray(2),
    ])
    expect(readLogo(url("jpeg", hidden.toString("base64")))).toContain("must match its type")
    const padded = (bytes: number) =>
      url("png", Buffer.concat([Buffer.from(png, "base64"), Buffer.alloc(bytes)]).toString("base64"))
    const head = Buffer.from(png, "base64").length
    expect(typeof readLogo(padded(65_536 - head))).toBe("object")
    expect(readLogo(padded(65_537 - head))).toBe("must be an image of at most 64 KB")
  })

  it("never throws, whatever its bytes are", () => {
    const heads = [png, jpeg, webp(vp8), webp(vp8l), extended(0)].map(text => Buffer.from(text, "base64"))
    const damaged = fc.tuple(fc.constantFrom(...heads), fc.nat(60), fc.uint8Array({ maxLength: 40 }))
    fc.assert(
      fc.property(damaged, fc.constantFrom("png", "jpeg", "webp"), ([head, cut, rest], type) => {
        const bytes = Buffer.concat([head.subarray(0, cut), rest])
        readLogo(url(type, bytes.toString("base64")))
      }),
      { numRuns: 2_000 },
    )
  })
})

describe("the origin of a site", () => {
  it("is written in its normal form; http is for those who try", () => {
    expect(readOrigin("https://Shop.example:443/", "live")).toBe("https://shop.example")
    expect(readOrigin("https://bücher.example", "live")).toBe("https://xn--bcher-kva.example")
    expect(readOrigin("https://[::1]:8443", "live")).toBe("https://[::1]:8443")
    expect(readOrigin("http://127.0.0.1:3000", "sandbox")).toBe("http://127.0.0.1:3000")
    expect(readOrigin("http://shop.example", "live")).toBeUndefined()
  })

  it("contains nothing that means more in a policy", () => {
    const hostile = [
      "*",
      "https://*",
      "https://*.shop.example",
      "https://shop.example;script-src *",
      "https://a'none'.example",
      "https://shop.example https://evil.example",
      "https://a,b.example",
      "'self'",
      "data:",
      "null",
      "",
      "https://shop.example/path",
      "https://shop.example/?a",
      "https://shop.example#a",
      "https://me@shop.example",
      "javascript:alert(1)",
      "file:///",
      "ftp://shop.example",
      "https://shop.example\r\nSet-Cookie: a=b/",
      "https://",
    ]
    for (const text of hostile) expect([text, readOrigin(text, "sandbox")]).toEqual([text, undefined])
  })
})
