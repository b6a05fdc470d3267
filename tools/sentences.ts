/**
 * Draws sentences for readers who mark what they would rewrite: `node tools/sentences.ts SEED` prints 80 of the documents, 60 that errors,
 * alarms, explanations and the command line say, 40 of decisions and 20 of comments, each with its file. One seed draws the same sentences
 * as long as the prose stays.
 */
import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"

const root = join(import.meta.dirname, "..")

/** How many are drawn of which files, and what of a file's text is prose. */
const kinds = [
  { name: "documents", n: 80, files: ["README.md", "docs/**/*.md"], not: /decisions\/|errors\.md$/, prose: ofMarkdown },
  { name: "errors", n: 20, files: ["docs/developers/errors.md"], prose: ofMarkdown },
  {
    name: "alarms, explanations, command line",
    n: 40,
    files: [
      "server/src/products/insight/standings.txt",
      "server/src/ledger/**/find-*-alarms.ts",
      "server/src/operations/**/*.ts",
      "cli/src/**/*.ts",
      "web/src/*.ts",
    ],
    not: /\.test\.ts$/,
    prose: ofTexts,
  },
  { name: "decisions", n: 40, files: ["docs/contributors/decisions/*.md"], prose: ofMarkdown },
  { name: "comments", n: 20, files: ["server/src/**/*.ts", "cli/src/**/*.ts"], not: /\.test\.ts$/, prose: ofComments },
] as const

function ofMarkdown(text: string): string[] {
  const plain = text
    .replace(/<!--[\s\S]*?-->/g, "")
    .replace(/^ *```[\s\S]*?^ *```/gm, "")
    .replace(/^Answered by: .*$/gm, "")
  // A cell, an item and a paragraph are each read by themselves.
  return plain
    .split(/\n\s*\n|\n(?= *(?:[-*|]|\d+\.) ?)|(?<=\S) \| /)
    .map(part => part.replace(/^[\s|*-]+|^\s*\d+\. /, ""))
}

/** The lines of a text file, and of a program the literals. */
function ofTexts(text: string): string[] {
  const literals = [...text.matchAll(/"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)].map(
    ([, plain, template]) => plain ?? template ?? "",
  )
  return literals.length > 0 ? literals : text.split("\n")
}

function ofComments(text: string): string[] {
  const comments = text.matchAll(/\/\*\*([\s\S]*?)\*\/|((?:^ *\/\/ .*\n)+)/gm)
  return [...comments].map(([, block = "", lines = ""]) => (block || lines).replace(/^ *(?:\*|\/\/)/gm, ""))
}

/** The sentences of a text that are long enough to be judged alone. */
function sentencesOf(text: string): string[] {
  const whole = text.replace(/\*\*/g, "").replace(/\s+/g, " ").trim()
  const all = whole.match(/[A-Z0-9`"][^.!?]*(?:[.!?](?![\s)]|$)[^.!?]*)*[.!?](?=[\s)]|$)/g) ?? []
  return all
    .map(each => each.trim())
    .filter(each => each.split(" ").length >= 6 && each.length < 600 && /[a-z]{3}/.test(each))
}

/** Numbers from 0 to 1 from a seed: mulberry32 (Tommy Ettinger, public domain). */
function numbers(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

const next = numbers(Number(process.argv[2] ?? 1))
let n = 0
for (const { name, n: count, files, prose, ...rest } of kinds) {
  const not = "not" in rest ? rest.not : undefined
  const paths = [...new Set(files.flatMap(pattern => globSync(pattern, { cwd: root })))]
    .filter(path => !not?.test(path))
    .sort()
  const all = paths.flatMap(path =>
    [...new Set(prose(readFileSync(join(root, path), "utf8")).flatMap(sentencesOf))].map(sentence => ({
      path,
      sentence,
    })),
  )
  process.stdout.write(`\n${name} (${count} of ${all.length})\n`)
  for (let drawn = 0; drawn < count && all.length > 0; drawn++) {
    const [each] = all.splice(Math.floor(next() * all.length), 1)
    process.stdout.write(`${++n}. ${each?.sentence} [${each?.path}]\n`)
  }
}
