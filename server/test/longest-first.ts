/** The order of test files: the longest first, so that the workers end at about the same time. */
import { BaseSequencer, type TestSpecification } from "vitest/node"
import { longest } from "./longest.ts"

const rank = ({ moduleId }: TestSpecification): number => {
  const at = longest.findIndex(path => moduleId.endsWith(`/${path}`))
  return at === -1 ? longest.length : at
}

/** A worker sees one database: its process is used again as long as the next file is on the same one. */
const onPostgres = ({ project }: TestSpecification): number => (project.name === "postgres" ? 1 : 0)

/** Vitest's order, with the longest files of each database moved to its front, and Postgres, which has none that wait, last. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).sort((a, b) => onPostgres(a) - onPostgres(b) || rank(a) - rank(b))
  }
}
