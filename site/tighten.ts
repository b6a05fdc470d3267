/**
 * Makes a built site fit a policy without anything inline: scripts and styles inside pages become files, and `style` attributes
 * become classes of one file. Hashes in the policy would do for scripts, but would differ from page to page.
 */
import { createHash } from "node:crypto"
import { globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { brotliCompressSync, constants } from "node:zlib"

const TAG = /<[a-zA-Z][\w-]*(?:\s+[^\s"'<>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'=<>`]+))?)*\s*\/?>/g
const short = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 10)

/** Rewrites the pages below a folder. */
export function tighten(folder: string): void {
  mkdirSync(join(folder, "_astro"), { recursive: true })
  const classes = new Map<string, string>()
  const pages = new Map<string, string>()
  const file = (text: string, extension: string): string => {
    const path = `_astro/i.${short(text)}.${extension}`
    writeFileSync(join(folder, path), text)
    return `/docs/${path}`
  }
  const tagWithoutStyle = (tag: string): string => {
    const [whole, style] = /\sstyle="([^"]*)"/.exec(tag) ?? []
    if (whole === undefined || style === undefined) return tag
    const name = `s-${short(style)}`
    classes.set(
      name,
      style
        .replace(/&quot;/g, '"')
        .replace(/&#39;/g, "'")
        .replace(/&amp;/g, "&"),
    )
    const bare = tag.replace(whole, "")
    return /\sclass="/.test(bare)
      ? bare.replace(/\sclass="/, ` class="${name} `)
      : bare.replace(/^<[\w-]+/, `$& class="${name}"`)
  }
  for (const name of globSync("**/*.html", { cwd: folder })) {
    const path = join(folder, name)
    const page = readFileSync(path, "utf8")
      .replace(/<script((?:(?!\ssrc=)[^>])*)>([\s\S]*?)<\/script>/g, (whole, attributes: string, text: string) =>
        text.trim() === "" || /type="(?!module)/.test(attributes)
          ? whole
          : `<script${attributes} src="${file(text, "js")}"></script>`,
      )
      .replace(
        /<style[^>]*>([\s\S]*?)<\/style>/g,
        (_, text: string) => `<link rel="stylesheet" href="${file(text, "css")}">`,
      )
      // A table without headings: an empty heading is a fault to those who hear it.
      .replace(/<th><\/th>/g, "<td></td>")
      .replace('href="/favicon.svg"', 'href="/docs/favicon.svg"')
      .replace(TAG, tagWithoutStyle)
    pages.set(path, page)
  }
  const styles = file(`${[...classes].map(([name, style]) => `.${name}{${style}}`).join("\n")}\n`, "css")
  for (const [path, page] of pages)
    writeFileSync(path, page.replace("</head>", `<link rel="stylesheet" href="${styles}"></head>`))
  for (const name of globSync("**/*.{html,css,js,json,md,txt}", { cwd: folder })) compress(join(folder, name))
}

/** Quality 9: the highest takes ten times as long, and saves a twentieth. */
function compress(path: string): void {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 9 }
  writeFileSync(`${path}.br`, brotliCompressSync(readFileSync(path), { params }))
}
