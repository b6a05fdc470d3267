/** The files of `ops` as values, for the tests that do what they say. */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { DockerfileParser } from "dockerfile-ast"
import { parse } from "yaml"
import { root } from "./e2e/program.ts"

/** The text of a file of `ops`. */
export const ops = (name: string): string => readFileSync(join(root, "ops", name), "utf8")

/** A test reads what it expects of a file, and fails when it is not there. */
// biome-ignore lint/suspicious/noExplicitAny: see above.
export type Anything = any

const dockerfile = DockerfileParser.parse(ops("Dockerfile"))
const [, build = "", final = ""] = ops("Dockerfile").split(/^(?=FROM )/m)

/** What `ops/Dockerfile` says: its two stages, their commands, and the last instruction of each kind. */
export const image = {
  build,
  final,
  /** The commands of a stage, each in one line. */
  commands: (stage: string) =>
    [...stage.replace(/\\\n/g, " ").matchAll(/^RUN (.*)$/gm)].flatMap(match => match[1]?.split(" && ") ?? []),
  /** The arguments of the last instruction of this kind. */
  last: (kind: string): string => {
    const found = dockerfile
      .getInstructions()
      .filter(each => each.getKeyword() === kind)
      .at(-1)
    return (found?.getArguments() ?? []).map(each => each.getValue()).join(" ")
  },
  list: (kind: string): string[] => JSON.parse(image.last(kind).replace(/^.*?\[/, "[")),
  environment: Object.fromEntries(
    [...(/^ENV (.*)$/m.exec(final)?.[1]?.split(" ") ?? [])].map(pair => pair.split("=")),
  ) as Record<string, string>,
}

/** What `ops/compose.yaml` says, its anchors merged. */
export const compose: Anything = parse(ops("compose.yaml"), { merge: true })
