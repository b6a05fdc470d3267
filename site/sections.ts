/** The site's order: which pages of which reader, by their paths below `docs/`. The API's are those of its document. */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { referencePages } from "./reference.ts"

const document = JSON.parse(readFileSync(join(import.meta.dirname, "../docs/openapi.json"), "utf8"))

export interface Section {
  label: string
  slugs: string[]
  collapsed?: boolean
}

export const sections: Section[] = [
  { label: "Start", slugs: ["index", "merchants/first-payment"] },
  {
    label: "For merchants",
    slugs: [
      "console",
      "paywalls",
      "returns",
      "escrow",
      "subscriptions",
      "reports",
      "receipts",
      "mail",
      "audit",
      "roles",
      "promises",
    ].map(name => `merchants/${name}`),
  },
  {
    label: "For developers",
    slugs: [
      "webhooks",
      "sdk",
      "cli",
      "mcp",
      "live",
      "what-happened",
      "embedding",
      "x402",
      "x402-clients",
      "x402-proxy",
      "contracts",
      "errors",
    ].map(name => `developers/${name}`),
  },
  {
    label: "API reference",
    slugs: referencePages(document).map(({ slug }) => slug.replace(/\/index$/, "")),
    collapsed: true,
  },
  {
    label: "For operators",
    slugs: [
      "go-live",
      "operations",
      "settings",
      "alarms",
      "wallet",
      "trust",
      "strangers",
      "quotas",
      "scale",
      "performance",
    ]
      .map(name => `operators/${name}`)
      .concat("changelog"),
    collapsed: true,
  },
  {
    label: "For contributors",
    slugs: ["architecture", "adding", "features", "internals", "roadmap", "decisions"].map(
      name => `contributors/${name}`,
    ),
    collapsed: true,
  },
]
