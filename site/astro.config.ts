/** The site: Starlight over the pages that `stage.ts` makes of `docs/`, below `/docs`. */
import starlight from "@astrojs/starlight"
import { defineConfig, passthroughImageService } from "astro/config"
import { sections } from "./sections.ts"

export default defineConfig({
  base: "/docs",
  trailingSlash: "always",
  build: { inlineStylesheets: "never" },
  image: { service: passthroughImageService() },
  telemetry: false,
  markdown: {
    shikiConfig: {
      themes: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
      defaultColor: false,
      wrap: true,
    },
  },
  integrations: [
    starlight({
      title: "Sluice",
      // Its blocks carry inline styles and scripts, which the site's policy refuses.
      expressiveCode: false,
      credits: false,
      pagefind: true,
      customCss: ["./src/styles/fonts.css", "./src/styles/site.css"],
      tableOfContents: { minHeadingLevel: 2, maxHeadingLevel: 2 },
      sidebar: sections.map(({ label, slugs, collapsed }) => ({
        label,
        collapsed: collapsed ?? false,
        items: slugs.map(slug => (slug === "index" ? { slug, label: "What do you sell?" } : slug)),
      })),
    }),
  ],
})
