import { defineConfig } from "tsdown"

export default defineConfig({
  entry: ["src/index.ts", "src/webhooks.ts", "src/money.ts"],
  dts: true,
  format: "esm",
  platform: "neutral",
  target: "es2022",
})
