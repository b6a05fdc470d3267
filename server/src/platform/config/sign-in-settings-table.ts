/** The part of `settings-table.ts` about signing in: the console and the identity provider. */
import type { Setting } from "./setting.ts"
import { httpUrl, issuerUrl, listOf, oneOf, originUrl, text } from "./setting-values.ts"

/** The settings of sign-in, in the order in which `--help` prints them. */
export const signInSettings = {
  CONSOLE_URL: {
    meaning:
      "the address of the console, if its host is not BASE_URL's. The console's pages and cookie then exist only at this host, and the proxy must forward the Host header",
    otherwise: "BASE_URL",
    live: "https, and not a private address",
    parse: originUrl,
  },
  CONSOLE_ORIGINS: {
    meaning:
      "the origins of other browser-based consoles, comma-separated. These consoles send tokens, never the cookie",
    fallback: "",
    parse: listOf(part => new URL(httpUrl(part)).origin),
  },
  OIDC_ISSUER: {
    meaning: "the issuer of console tokens; equal to BASE_URL if merchants sign in only with wallets",
    otherwise: "the sandbox's own; required elsewhere",
    live: "must be set; https, not a private address, not a sandbox's",
    parse: issuerUrl,
  },
  OIDC_AUDIENCE: { meaning: "the audience that console tokens must name", fallback: "sluice", parse: text },
  OIDC_CLIENT_ID: {
    meaning:
      "the console's client id at OIDC_ISSUER, where people then sign in. The client's redirect URI is CONSOLE_URL/console/callback",
    otherwise: "none: people sign in with wallets",
    parse: text,
  },
  OIDC_CLIENT_SECRET: {
    meaning: "that client's secret",
    otherwise: "none: a public client, with PKCE",
    parse: text,
  },
  SIGNUP: {
    meaning: "open: the first valid token creates a merchant; invite: only invited subjects may sign up",
    otherwise: "open; in live mode invite",
    parse: oneOf("open", "invite"),
  },
} satisfies Record<string, Setting<unknown>>
