/** How the pages are built: hashed files, one chunk per language, nothing inline. */
import { defineConfig } from "vite"

export default defineConfig({
  root: import.meta.dirname,
  appType: "custom",
  publicDir: false,
  logLevel: "warn",
  build: {
    manifest: "manifest.json",
    target: "es2022",
    // The pages' policy forbids inline scripts, and the browsers of this target need no polyfill.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rollupOptions: { input: ["src/pay/main.tsx", "src/embed/embed.ts", "src/sign-in/sign-in.ts"] },
  },
})
