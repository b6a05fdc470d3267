/**
 * Makes the site's pages of `docs/` as it is: the title is the first heading, the description the first paragraph, and links between
 * documents become paths of the site. It also writes each page as Markdown, `llms.txt`, which lists them, `llms-full.txt`, which has
 * them in one file, and the changelog as a feed.
 */
import { copyFileSync, existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join, normalize } from "node:path"
import { referencePages } from "./reference.ts"
import { sections } from "./sections.ts"

const here = import.meta.dirname
const docs = join(here, "../docs")
const content = join(here, "src/content/docs")
const copies = join(here, "public")

/** A page before it is of the site: its path below `docs/` without `.md`, and its text. */
export interface Source {
  slug: string
  text: string
}

const slugOf = (file: string): string => file.replace(/(^|\/)README\.md$/, "$1index.md").replace(/\.md$/, "")

/** All documents, and the pages of the API. */
function sources(): Source[] {
  const files = globSync("**/*.md", { cwd: docs }).sort()
  const ours = files.map(file => ({ slug: slugOf(file), text: readFileSync(join(docs, file), "utf8") }))
  // The changelog is beside `docs/`, where npm and readers of the sources look for it.
  const changelog = {
    slug: "changelog",
    text: readFileSync(join(here, "../CHANGELOG.md"), "utf8").replaceAll("](docs/", "]("),
  }
  return [...ours, changelog, ...referencePages(JSON.parse(readFileSync(join(docs, "openapi.json"), "utf8")))]
}

/** The path of a page on the site. */
const pathOf = (slug: string): string =>
  `/docs/${slug.replace(/(^|\/)index$/, "$1").replace(/\/?$/, slug === "index" ? "" : "/")}`

/** A link of a document as a path of the site. What lies outside `docs/` is in the sources alone, and loses its link. */
function linked(text: string, slug: string): string {
  const targetOf = (link: string): string | undefined => {
    if (/^([a-z]+:|#|\/)/.test(link)) return link
    const [path = "", anchor] = link.split("#")
    const file = normalize(join(dirname(slug), path))
    if (file.startsWith("..") || !existsSync(join(docs, file))) return file === "index.md" ? "/docs/" : undefined
    if (!file.endsWith(".md")) return `/docs/${file}`
    return `${pathOf(slugOf(file))}${anchor === undefined ? "" : `#${anchor}`}`
  }
  return text
    .replace(/(?<!!)\[([^\]]*)\]\(([^)\s]+)\)/g, (_, words: string, link: string) => {
      const target = targetOf(link)
      return target === undefined ? words : `[${words}](${target})`
    })
    .replace(/href="([^"]+)"/g, (_, link: string) => `href="${targetOf(link) ?? "/docs/"}"`)
    .replace(/\]\(([^)\s]+\.(?:png|svg|webp))\)/g, (_, link: string) => `](${targetOf(link) ?? link})`)
}

interface Page {
  slug: string
  title: string
  description: string
  body: string
}

/** The title, the first sentence or two, and the rest. */
function pageOf({ slug, text }: Source): Page {
  const plain = text.replace(/^<!--.*?-->\s*/s, "")
  const title = /^# (.+)$/m.exec(plain)?.[1]?.replace(/`/g, "") ?? slug
  const body = plain.replace(/^# .+\n/m, "").trimStart()
  const first = body.split(/\n\s*\n/).find(part => /^[A-Z*`]/.test(part)) ?? title
  const words = first
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/[*`]/g, "")
    .replace(/\s+/g, " ")
  const description = /^.{40,200}?[.:](?= |$)/.exec(words)?.[0] ?? words.slice(0, 200)
  return { slug, title, description: description.replace(/:$/, "."), body }
}

/** A block `sh walkthrough` has words for the tests beside its language. */
const plainFences = (body: string): string => body.replace(/^( *```\w+) [^\n`]+$/gm, "$1")

/** Errors are known by their codes, which the headings' own anchors would write in lower case. */
const withCodes = ({ slug, body }: Page): string =>
  slug === "developers/errors" ? body.replace(/^## (\w+)$/gm, '<a id="$1"></a>\n\n## $1') : body

/** Stages all pages; answers their slugs. */
export function stage(): string[] {
  for (const folder of [content, copies]) rmSync(folder, { recursive: true, force: true })
  const pages = sources().map(pageOf)
  for (const page of pages) {
    const { slug, title, description } = page
    const body = plainFences(linked(withCodes(page), slug))
    const isFirst = slug === "index"
    const head = {
      title,
      description,
      ...(isFirst ? { tableOfContents: false } : {}),
      ...(slug.includes("decisions/") ? { pagefind: false } : {}),
    }
    const lines = Object.entries(head).map(([name, value]) => `${name}: ${JSON.stringify(value)}`)
    write(join(content, `${slug}.md`), `---\n${lines.join("\n")}\n---\n\n${body}`)
    write(join(copies, `${slug}.md`), `# ${title}\n\n${linked(page.body, slug)}`)
  }
  write(join(copies, "llms.txt"), llms(pages))
  write(join(copies, "llms-full.txt"), llmsFull(pages))
  write(join(copies, "changelog.xml"), feed(readFileSync(join(here, "../CHANGELOG.md"), "utf8")))
  write(join(copies, "favicon.svg"), ICON)
  for (const name of ["openapi.json", ...globSync("**/*.{png,webp}", { cwd: docs })]) {
    mkdirSync(dirname(join(copies, name)), { recursive: true })
    copyFileSync(join(docs, name), join(copies, name))
  }
  return pages.map(({ slug }) => slug)
}

const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill="#1b4fd8"/><path d="M4 5h8M4 8h8M4 11h5" stroke="#fff" stroke-width="1.5" stroke-linecap="round"/></svg>\n'

function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
}

/** What merchants, developers and operators read, in one file. The API's pages are as long again, and stay files of their own. */
function llmsFull(pages: readonly Page[]): string {
  const bySlug = new Map(pages.map(page => [page.slug, page]))
  const whole = sections.flatMap(({ label, slugs }) =>
    label === "API reference" || label === "For contributors" ? [] : slugs.flatMap(slug => bySlug.get(slug) ?? []),
  )
  return whole.map(({ slug, title, body }) => `# ${title}\n\n${linked(body, slug).trim()}\n`).join("\n")
}

const escaped = (text: string): string => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;")

/** The changelog as Atom (RFC 4287): an entry for each release. What is not released yet has no date, and no entry. */
function feed(changelog: string): string {
  const entries = [...changelog.matchAll(/^## (\S+) \((\d{4}-\d{2}-\d{2})\)\n([\s\S]*?)(?=^## |$(?![\s\S]))/gm)].map(
    ([, version = "", date = "", text = ""]) => `  <entry>
    <id>urn:sluice:release:${escaped(version)}</id>
    <title>Sluice ${escaped(version)}</title>
    <updated>${date}T00:00:00Z</updated>
    <content type="text">${escaped(text.trim())}</content>
  </entry>`,
  )
  const [, newest = "1970-01-01"] = /^## \S+ \((\d{4}-\d{2}-\d{2})\)$/m.exec(changelog) ?? []
  return `<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <id>urn:sluice:releases</id>
  <title>Sluice releases</title>
  <author><name>Sluice</name></author>
  <updated>${newest}T00:00:00Z</updated>
${entries.join("\n")}
</feed>
`
}

/** The list of all pages for language models, by llmstxt.org: each as Markdown. */
function llms(pages: readonly Page[]): string {
  const listed = new Map(pages.map(page => [page.slug, page]))
  const line = ({ slug, title, description }: Page) => `- [${title}](/docs/${slug}.md): ${description}`
  const parts = sections.map(({ label, slugs }) => {
    return `## ${label}\n\n${slugs
      .flatMap(slug => listed.get(slug) ?? listed.get(`${slug}/index`) ?? [])
      .map(line)
      .join("\n")}`
  })
  return `# Sluice\n\n> Stablecoin payments that you host yourself, for EVM chains. Each page below is Markdown.\n\n${parts.join("\n\n")}\n`
}
