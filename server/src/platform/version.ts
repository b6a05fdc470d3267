/** The version and the license of this service, as its package states them. */
import manifest from "../../../package.json" with { type: "json" }

export const { version, license } = manifest
