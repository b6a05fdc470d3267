/** How the package is built: one module for each entry, with its types. */
import { defineConfig } from "tsdown"

const frameworks = ["express", "fastify", "hono", "next"]

export default defineConfig({
  entry: {
    index: "src/index.ts",
    webhooks: "src/webhooks.ts",
    money: "src/money.ts",
    buyer: "src/buyer/buyer.ts",
    ...Object.fromEntries(frameworks.map(name => [name, `src/middleware/${name}.ts`])),
  },
  dts: true,
  format: "esm",
  platform: "neutral",
  target: "es2022",
})
