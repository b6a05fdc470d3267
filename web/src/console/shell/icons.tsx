/** The few icons: lines of one width, drawn for these pages. */
const paths = {
  home: "M3 8.5 10 3l7 5.5V17h-4.5v-5h-5v5H3z",
  payments: "M3 6h14M3 10h14M3 14h8",
  needs: "M10 3.5 17.5 16.5h-15zM10 8.5v3.5M10 14.2v.1",
  checkouts: "M4 4h12v13l-2-1.4-2 1.4-2-1.4-2 1.4-2-1.4L4 17zM7 8h6M7 11h6",
  links:
    "M8.5 11.5a3 3 0 0 0 4.3 0l2.9-2.9a3 3 0 1 0-4.3-4.3l-1 1M11.5 8.5a3 3 0 0 0-4.3 0l-2.9 2.9a3 3 0 1 0 4.3 4.3l1-1",
  products: "M10 3l6.5 3.5v7L10 17l-6.5-3.5v-7zM3.5 6.5 10 10l6.5-3.5M10 10v7",
  paywalls: "M5 9V6.5a5 5 0 0 1 10 0V9M4 9h12v8H4zM10 12v2",
  payouts: "M10 3v10M6 9l4 4 4-4M4 17h12",
  keys: "M7 13a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM10.5 9.5H17v3M14 9.5v2",
  wallet: "M3 6h12v10H3zM3 6l9-3v3M12 11h5",
  team: "M7.5 9.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3 16a4.5 4.5 0 0 1 9 0M13 5a2.3 2.3 0 0 1 0 4.5M14 12a4 4 0 0 1 3 4",
  audit: "M5 3h10v14H5zM8 7h4M8 10h4M8 13h2",
  payers: "M10 10a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM4 17a6 6 0 0 1 12 0",
  reports: "M4 17V9M8.5 17V4M13 17v-6M17 17v-3",
  subscriptions: "M4 10a6 6 0 0 1 10.5-4L16 7.5M16 4v3.5h-3.5M16 10a6 6 0 0 1-10.5 4L4 12.5M4 16v-3.5h3.5",
  bundles: "M7 6l-4 4 4 4M13 6l4 4-4 4",
  splits: "M10 17v-6M10 11 5 6M10 11l5-5M5 9.5V6h3.5M15 9.5V6h-3.5",
  sandbox: "M8 3h4M9 3v5l-4.5 8h11L11 8V3M6.5 13h7",
  requests: "M4 5h12M4 10h8M4 15h10M16 8v6",
  system: "M3 11h3l2-4 3 7 2-5 1 2h3",
  webhooks: "M3 10h3.5l2-5 3 10 2-5H17",
  more: "M4 10h.1M10 10h.1M16 10h.1",
  search: "M9 15A6 6 0 1 0 9 3a6 6 0 0 0 0 12zM13.5 13.5 17 17",
  sun: "M10 13.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.3 4.3l1.1 1.1M14.6 14.6l1.1 1.1M4.3 15.7l1.1-1.1M14.6 5.4l1.1-1.1",
  plus: "M10 4v12M4 10h12",
  external: "M8 4H4v12h12v-4M11 4h5v5M16 4l-7 7",
}
export type IconName = keyof typeof paths

export function Icon({ name }: { name: IconName }) {
  return (
    <svg viewBox="0 0 20 20" width="16" height="16" aria-hidden="true" className="icon">
      <path d={paths[name]} />
    </svg>
  )
}
