/** The facts on every page: the merchant, the network and the token. */
import { sql } from "kysely"
import { catalogues } from "../../../../web/src/i18n/all.ts"
import type { Language } from "../../../../web/src/i18n/languages.ts"
import type { NetworkFacts, PageBase, TokenFacts } from "../../../../web/src/page-data.ts"
import { shown } from "../../../../web/src/ui/shown.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { type NetworkInfo, networkFacts } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { shownBranding } from "../settings/change-branding.ts"

/** A merchant's public name, and its branding if there is any. */
export interface Face {
  name: string | null
  accent_color: string | null
  allowed_origins: string[] | null
  logo_hash: string | null
}

/** SQL: the columns of a {@link Face}, for a merchant `m` and its `branding` `b`. */
export const faceColumns = sql`m.name, b.accent_color, b.allowed_origins, b.logo_hash`

/** Reads the facts that all pages of a merchant on a network share. */
export async function pageBase(
  ctx: TxContext,
  { merchantId, network, lang }: { merchantId: string; network: NetworkInfo; lang: Language },
): Promise<PageBase> {
  const { rows } = await sql<Face>`
    select /* named: faces */ ${faceColumns} from merchants m left join branding b on b.merchant_id = m.id
    where m.id = ${merchantId}`.execute(ctx.db)
  return pageBaseOf(ctx, { face: rows[0], network, lang })
}

/** Builds the same facts for a merchant that was already read. */
export const pageBaseOf = (
  ctx: TxContext,
  { face, network, lang }: { face: Face | undefined; network: NetworkInfo; lang: Language },
): PageBase => ({
  lang,
  merchant: shown(face?.name ?? "") || catalogues[lang].payment,
  brand: shownBranding(face),
  sandbox: ctx.settings.mode === "sandbox",
  network: networkShown(ctx, network),
  token: tokenShown(network),
})

/** A network in the form that people and wallets need. */
function networkShown(ctx: TxContext, { name, chainId, endpoints }: NetworkInfo): NetworkFacts {
  const { title, publicRpc, explorer } = networkFacts[name]
  if (ctx.settings.mode !== "sandbox") return { chainId, title, rpcUrl: publicRpc, explorer }
  // Only the sandbox shows its node's URL, because a real node's URL may contain a key.
  const [endpoint] = endpoints as readonly { url: string }[]
  return { chainId, title, rpcUrl: endpoint?.url ?? null, explorer: null }
}

const tokenShown = ({ token }: NetworkInfo): TokenFacts => ({
  address: checksummed(token.address),
  symbol: token.symbol,
  decimals: token.decimals,
  name: token.name,
  version: token.version,
})
