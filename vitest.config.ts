/** How the tests are found and run: each file in a worker of its own, on real parts. */
import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["server/**/*.test.ts", "contracts/**/*.test.ts"],
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
})
