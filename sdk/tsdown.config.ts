/** How the package is built: one module for each entry, with its types. */
import { defineConfig } from "tsdown"

export default defineConfig({
  entry: ["src/index.ts", "src/webhooks.ts", "src/money.ts"],
  dts: true,
  format: "esm",
  platform: "neutral",
  target: "es2022",
})
