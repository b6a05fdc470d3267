/** Fills the sentences of a catalogue with values. Pure: the server and the browser both use it. */
import type { Catalogue } from "./en.ts"

/** A sentence of a catalogue with its `{name}` parts replaced. A part without a value stays unchanged. */
export type Translate = (key: keyof Catalogue, values?: Record<string, string | number>) => string

/** The sentences of one catalogue. */
export const translator =
  (catalogue: Catalogue): Translate =>
  (key, values = {}) =>
    catalogue[key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole))
