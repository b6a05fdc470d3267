/** Plain English: phrases that only this project's authors understood, each with what to write instead. */
import { execFileSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { describe, expect, it } from "vitest"

const root = new URL("../../", import.meta.url).pathname

/** Decisions keep the words of their day, an applied migration must not change, and these two files are generated or this one. */
const exempt =
  /^docs\/contributors\/decisions\/|\/migrations\/|^server\/src\/platform\/chain\/abi\.ts$|^server\/test\/english\.test\.ts$/

/** A phrase, and the words to use in its place. A pattern has no other use in this repository's prose. */
const banned: [pattern: RegExp, instead: string][] = [
  [/\b(tells|telling|told)\b/i, "report, notify, show, say, distinguish"],
  [/\blook(s|ed|ing)? at (again|lately|now)\b|\b(is|are|was|were|be|been) looked at\b/i, "check, scan, verify, retry"],
  [/\bstands? in for\b/i, "replaces, is used as"],
  [/\bstands? so\b/i, "has this state"],
  [/\bwhat waits\b/i, "pending or waiting payouts, payments, deliveries"],
  [/\bgo(es)? on by (itself|themselves)\b/i, "continues, recovers"],
  [/\bof a hand\b/i, "a manual action"],
  [/\bclaimed ahead\b/i, "prefetched"],
  [/\bwho died\b/i, "a worker that died"],
  [/\bnobody meant\b/i, "without a payout"],
  [/\bopens nothing\b/i, "is rejected"],
  [/\b(hot|cold) (address|deposit)/i, "watched, dormant"],
  [/\bby the word of\b|\b(endpoint|endpoints|node|voter)'s? word\b/i, "according to, as … reports"],
  [/\banew\b/i, "again"],
  [/\btrial run/i, "simulation"],
  [/\bis sane\b|\bmay do better\b/i, "is acceptable; may succeed"],
  [/\bhow-manieth\b/i, "index"],
  [/\bas ever\b/i, "as usual"],
  [/\ball the same\b/i, "anyway"],
  [/\bput down as\b/i, "recorded as"],
  [/\bnobody's business\b/i, "not shown, secret"],
  [/\bnothing leads\b|\bleads? back to none\b/i, "never gives up"],
  [/\ba bound closed\b|\bby a bound\b/i, "a limit"],
  [/\bhow (it|they|things|everything|each \w+|the \w+) stands?\b/i, "the state of"],
  [/\bwhoever (died|holds it)\b/i, "name the subject"],
  [/\b(chain|reorg) (took|takes|take) (\w+ ){0,3}back\b/i, "reversed, removed by a reorg"],
]

/** The old names of things, as identifiers, parts of them and stored words, each with what to write instead. */
const oldNames: [pattern: RegExp, instead: string][] = [
  [
    /\b(tell|told|Told)\b|\b(tell|told|Told)[A-Z]|[a-z](Tell|Told|Teller)(?=[A-Z]|\b)|\btell_by\b/,
    "notify, report, format",
  ],
  [/[a-z](?<!log)Intents?\b|\bIntents?(State)?\b|\bintents?(?!ion)([A-Z_]\w*)?\b/, "payout"],
  [/\b(from|join|into|update|on) attempts\b|(From|Into|Table|Join|Row<)\(?"attempts"/, "transaction_attempts"],
  [/"(untold|gas_soon)"/, "rpc_unavailable, gas_warning"],
  [
    /\b(hot|cold|warm|cool)[A-Z]\w*|[a-z](Cold|Warm|Cool)(?=[A-Z]|\b)|\bWARM_|\bhot(_until)?\b|\bcooled_at\b/,
    "watched, dormant",
  ],
  [/\b[pP]anel\b|[a-z]Panel\b|\bPanelView\b|\bseat\b/, "Quorum, admitVoter"],
  [/\brecentMisses\b|\bMisses\b/, "negative cache"],
  [/\b(Wallet)?Sight\b|\blookAt[A-Z]?\w*|\blookSoon\b/, "WalletState, readWalletState, verifySoon"],
]

/** The prose of a file: a Markdown file as a whole; of others the comments and the string literals that hold a space. */
function proseOf(path: string): string[] {
  const text = readFileSync(`${root}${path}`, "utf8")
  if (path.endsWith(".md")) return [text.replace(/\s+/g, " ")]
  const parts = path.endsWith(".ts") || path.endsWith(".sol") ? ofCode : /(?<=^|\n)#[^\n]*/g
  return [...text.matchAll(parts)]
    .map(([part]) => part)
    .filter(part => part.includes(" "))
    .map(part => part.replace(/\$\{[^}]*\}/g, "…").replace(/\n\s*(\*(?!\/)|\/\/\/?)?\s*/g, " "))
}
const ofCode = /\/\*[\s\S]*?\*\/|(?<=^|\s)(?:\/\/[^\n]*\n\s*)*\/\/[^\n]*|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/gm

const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], { cwd: root })
  .toString()
  .split("\n")
  .filter(path => /\.(ts|sol|md)$|^script\//.test(path) && !exempt.test(path))

/** Each banned phrase of a file, with some words around it. */
const phrasesOf = (path: string): string[] =>
  proseOf(path).flatMap(part =>
    banned.flatMap(([pattern, instead]) => {
      const at = part.search(pattern)
      return at === -1 ? [] : [`${path}: …${part.slice(Math.max(0, at - 40), at + 40)}… (${instead})`]
    }),
  )

describe("plain English", () => {
  it("sees comments that span lines, strings and documents", () => {
    expect(files.length).toBeGreaterThan(200)
    expect(proseOf("server/src/platform/errors.ts").join("\n")).toContain("details` lists each fault")
    expect(proseOf("server/test/english.test.ts").join("\n")).toContain("the string literals that hold a space")
    expect(proseOf("README.md").join("\n")).toContain("Stablecoin payments that you host yourself")
  })

  it("has none of the banned phrases", () => {
    expect(files.flatMap(phrasesOf)).toEqual([])
  })

  it("has no identifier of an old name", () => {
    // The tests of the migrations name what older versions stored.
    const code = files.filter(
      path => path.endsWith(".ts") && !/^server\/src\/platform\/db\/|^web\/src\/i18n\//.test(path),
    )
    const found = code.flatMap(path => {
      const lines = readFileSync(`${root}${path}`, "utf8").split("\n")
      return oldNames.flatMap(([pattern, instead]) =>
        lines.filter(line => pattern.test(line)).map(line => `${path}: ${line.trim()} (${instead})`),
      )
    })
    expect(found).toEqual([])
  })
})

/** The clauses about a field or a setting in the product's strings: what callers read as `details[].message`. */
const clauses = (): string[] =>
  files
    .filter(path => path.startsWith("server/src/") && /(?<!\.test)\.ts$/.test(path))
    .flatMap(path => [...readFileSync(`${root}${path}`, "utf8").matchAll(/"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g)])
    .map(([text]) => text.slice(1, -1).replace(/\$\{(?:[^{}]|\{[^{}]*\})*\}/g, "…"))
    .filter(text => /^(must|can't|is|was|has|does|names|points|belongs|comes|appears|contains) \S+ \S/.test(text))

describe("all clauses about a field", () => {
  it("stand in fault-clauses.txt, so that whoever adds one reads it among the others", async () => {
    await expect(`${[...new Set(clauses())].sort().join("\n")}\n`).toMatchFileSnapshot("fault-clauses.txt")
  })
})
