/**
 * A merchant's colour on the pages. The main button has exactly this colour. Text and outlines use a shade that is
 * readable: darker on a light page, brighter on a dark one. Pure.
 */

type Rgb = readonly [number, number, number]

/**
 * The backgrounds on which accents are hardest to read: the colours `--soft` and `--card` of `web/src/ui/pages.css`.
 */
const looks = {
  light: { soft: "#f1f2f5", card: "#ffffff", towards: "#000000" },
  dark: { soft: "#20242c", card: "#171a20", towards: "#ffffff" },
} as const
/** The contrast that WCAG 2.2 requires for text, and for other parts that must be visible. */
const TEXT_CONTRAST = 4.5
const SHAPE_CONTRAST = 3
/** The darkest ink. On medium colours, both white and a softer ink would have a contrast below 4.5. */
const DARK_INK = "#000000"
const STEPS = 100

/** The colours of one look. */
export interface Accent {
  accent: string
  button: string
  onButton: string
  /** The button's outline: the button's colour, unless that does not stand out from the card. */
  edge: string
}

/** Computes the colours for `color` (`#rrggbb`) on a light or a dark page. */
export function accentOn(look: keyof typeof looks, color: string): Accent {
  const { soft, card, towards } = looks[look]
  let accent = color
  for (let step = 1; contrastOf(accent, soft) < TEXT_CONTRAST && step <= STEPS; step++)
    accent = mixed(color, towards, step / STEPS)
  const onButton = contrastOf(color, "#ffffff") >= contrastOf(color, DARK_INK) ? "#ffffff" : DARK_INK
  return { accent, button: color, onButton, edge: contrastOf(color, card) < SHAPE_CONTRAST ? accent : color }
}

/** The extra style of a page with this colour; empty if there is no colour. */
export function accentStyle(color: string | null): string {
  // Checked, because the colour becomes part of the page unescaped.
  if (color === null || !/^#[0-9a-f]{6}$/.test(color)) return ""
  const root = (look: keyof typeof looks) => {
    const { accent, button, onButton, edge } = accentOn(look, color)
    return `:root{--accent:${accent};--button:${button};--on-button:${onButton};--edge:${edge}}`
  }
  return `${root("light")}@media(prefers-color-scheme:dark){${root("dark")}}`
}

/** The contrast of two colours by WCAG, from 1 to 21. */
export function contrastOf(one: string, other: string): number {
  const [dark = 0, bright = 0] = [luminanceOf(one), luminanceOf(other)].sort((a, b) => a - b)
  return (bright + 0.05) / (dark + 0.05)
}

const rgbOf = (color: string): Rgb => {
  const part = (at: number) => Number.parseInt(color.slice(at, at + 2), 16)
  return [part(1), part(3), part(5)]
}

function luminanceOf(color: string): number {
  const [red, green, blue] = rgbOf(color).map(value => {
    const share = value / 255
    return share <= 0.040_45 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
  }) as unknown as Rgb
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}

/** Mixes in a `share` of the other colour, from 0 to 1. */
function mixed(color: string, other: string, share: number): string {
  const ends = rgbOf(other)
  const parts = rgbOf(color).map((value, i) => Math.round(value + ((ends[i] ?? 0) - value) * share))
  return `#${parts.map(value => value.toString(16).padStart(2, "0")).join("")}`
}
