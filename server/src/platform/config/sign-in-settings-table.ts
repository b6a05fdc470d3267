/** The part of `settings-table.ts` about who signs in where: the console and the identity provider. */
import type { Setting } from "./setting.ts"
import { httpUrl, issuerUrl, listOf, oneOf, originUrl, text } from "./setting-values.ts"

/** The settings of sign-in, in the order in which `--help` prints them. */
export const signInSettings = {
  CONSOLE_URL: {
    meaning:
      "the address of the console, where that is another host than BASE_URL's: its pages and its cookie are then at this host alone, whose proxy must pass the Host on",
    otherwise: "BASE_URL",
    live: "https, and not a private address",
    parse: originUrl,
  },
  CONSOLE_ORIGINS: {
    meaning: "origins of other browser consoles, comma-separated; they send tokens, never the cookie",
    fallback: "",
    parse: listOf(part => new URL(httpUrl(part)).origin),
  },
  OIDC_ISSUER: {
    meaning: "the issuer of console tokens; the same as BASE_URL where merchants sign in with wallets alone",
    otherwise: "the sandbox's own; needed elsewhere",
    live: "must be set; https, not a private address, not a sandbox's",
    parse: issuerUrl,
  },
  OIDC_AUDIENCE: { meaning: "the audience that console tokens must name", fallback: "sluice", parse: text },
  OIDC_CLIENT_ID: {
    meaning:
      "the console's client id at OIDC_ISSUER, with the redirect URI CONSOLE_URL/console/callback; people then sign in there",
    otherwise: "none: people sign in with wallets",
    parse: text,
  },
  OIDC_CLIENT_SECRET: {
    meaning: "the secret of that client",
    otherwise: "none: a public client, with PKCE",
    parse: text,
  },
  SIGNUP: {
    meaning: "open: the first valid token makes a merchant; invite: only for invited subjects",
    otherwise: "open, in live mode invite",
    parse: oneOf("open", "invite"),
  },
} satisfies Record<string, Setting<unknown>>
