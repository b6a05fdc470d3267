/** Searches this version's documents, section by section, for words. */
// I/O: reads the files once, at the first search, because they are part of the program.
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"

const DOCS = new URL("../../../../docs", import.meta.url).pathname
/** The readers whose documents are searched. The notes for this project's contributors are not searched. */
const READERS = ["merchants", "developers", "operators"]
const MAX_FOUND = 6
const MAX_EXCERPT = 1_500
/** How much more a word in a heading counts than a word in the text. */
const HEADING_WEIGHT = 8
const MAX_COUNTED = 5

interface Section {
  page: string
  heading: string
  text: string
}

/** Returns the sections that say most about these words, the best first. */
export async function searchDocs(words: string): Promise<Section[]> {
  sections ??= readSections()
  const asked = [...new Set(words.toLowerCase().match(/[\p{L}\p{N}_.]{2,}/gu) ?? [])]
  return (await sections)
    .map(section => ({ section, score: scoreOf(section, asked) }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, MAX_FOUND)
    .map(({ section }) => ({ ...section, text: section.text.slice(0, MAX_EXCERPT) }))
}

function scoreOf({ page, heading, text }: Section, asked: readonly string[]): number {
  const title = `${page} ${heading}`.toLowerCase()
  const body = text.toLowerCase()
  const scores = asked.map(
    word => (title.includes(word) ? HEADING_WEIGHT : 0) + Math.min(MAX_COUNTED, body.split(word).length - 1),
  )
  // A section that contains all of the words comes before one that contains one of them often.
  const hits = scores.filter(score => score > 0).length
  return scores.reduce((sum, score) => sum + score, 0) * hits
}

let sections: Promise<Section[]> | undefined

async function readSections(): Promise<Section[]> {
  const pages = await Promise.all(
    READERS.map(async reader =>
      (await readdir(join(DOCS, reader))).filter(name => name.endsWith(".md")).map(name => `${reader}/${name}`),
    ),
  )
  const read = pages.flat().map(async page => sectionsOf(page, await readFile(join(DOCS, page), "utf8")))
  return (await Promise.all(read)).flat()
}

function sectionsOf(page: string, document: string): Section[] {
  // Otherwise the list of routes of each error would match every word of a path.
  const text = document.replace(/^---\n.*?\n---\n/s, "").replaceAll(/^Answered by: .*$/gm, "")
  return text
    .split(/^(?=#{1,3} )/m)
    .map(part => ({ page, heading: /^#+ (.*)$/m.exec(part)?.[1] ?? page, text: part.replace(/^#+ .*\n/, "").trim() }))
    .filter(section => section.text !== "")
}
