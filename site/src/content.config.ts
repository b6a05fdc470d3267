/** The pages that `stage.ts` has made of `docs/`. */

import { defineCollection } from "astro:content"
import { docsLoader } from "@astrojs/starlight/loaders"
import { docsSchema } from "@astrojs/starlight/schema"

export const collections = { docs: defineCollection({ loader: docsLoader(), schema: docsSchema() }) }
