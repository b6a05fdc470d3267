/** How the tests are found and run: on real parts, each file on the database that `engines.ts` says. */
import { defineConfig } from "vitest/config"
import { onBoth, ownDatabase } from "./server/test/engines.ts"
import { LongestFirst } from "./server/test/longest-first.ts"

/** `script/test NAME --long` runs the long tests, and nothing else does. */
const kind = process.env.TEST_LONG ? "long" : "test"
const everything = ["cli", "sdk", "examples", "react", "server", "contracts", "web", "site", "tools", "verify"].map(
  folder => `${folder}/**/*.${kind}.ts`,
)
const exclude = ["**/node_modules/**"]
const common = {
  globalSetup: ["server/test/snapshot.ts"],
  isolate: false,
  // For what never ends. Tests start whole programs, and on a busy machine each start takes ten times as long; conditions
  // that do not come to hold are reported by `until` before.
  testTimeout: 300_000,
  hookTimeout: 300_000,
  // More than two cores: many tests wait for blocks, browsers and processes. With two workers a whole run used 1.3 cores.
  maxWorkers: 3,
}

/** The server of tests on Postgres. What runs on the embedded database must not see it. */
const { DATABASE_URL } = process.env
delete process.env.DATABASE_URL
const embedded = DATABASE_URL ? [...ownDatabase, ...Object.keys(onBoth)] : everything
const onPostgres = { include: everything, exclude: [...exclude, ...ownDatabase], env: { DATABASE_URL } }

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    maxWorkers: common.maxWorkers,
    projects: [
      { test: { ...common, name: "embedded", include: embedded, exclude } },
      ...(DATABASE_URL ? [{ test: { ...common, name: "postgres", ...onPostgres } }] : []),
    ],
  },
})
