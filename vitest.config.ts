/** How the tests are found and run: each file in a worker of its own, on real parts. */
import { defineConfig } from "vitest/config"
import { LongestFirst } from "./server/test/longest-first.ts"

export default defineConfig({
  test: {
    include: ["server/**/*.test.ts", "contracts/**/*.test.ts", "web/**/*.test.ts"],
    globalSetup: ["server/test/snapshot.ts"],
    isolate: false,
    // For what never ends. Tests start whole programs, and on a busy machine each start takes ten times as long; conditions
    // that do not come to hold are reported by `until` before.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // More than two cores: many tests wait for blocks, browsers and processes. With two workers a whole run used 1.3 cores.
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
  },
})
