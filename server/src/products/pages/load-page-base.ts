/** The facts on every page: the merchant, the network and the token. */
import { catalogues } from "../../../../web/src/i18n/all.ts"
import type { Language } from "../../../../web/src/i18n/languages.ts"
import type { NetworkFacts, PageBase, TokenFacts } from "../../../../web/src/page-data.ts"
import { shown } from "../../../../web/src/ui/shown.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { type NetworkInfo, networkFacts } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { brandingOf } from "../settings/change-branding.ts"

/** Reads the facts that all pages of a merchant have on a network. */
export async function pageBase(
  ctx: TxContext,
  { merchantId, network, lang }: { merchantId: string; network: NetworkInfo; lang: Language },
): Promise<PageBase> {
  return {
    lang,
    merchant: (await merchantName(ctx, merchantId)) || catalogues[lang].payment,
    brand: await brandingOf(ctx, merchantId),
    sandbox: ctx.settings.mode === "sandbox",
    network: networkShown(ctx, network),
    token: tokenShown(network),
  }
}

/** A network in the form that people and wallets use. */
function networkShown(ctx: TxContext, { name, chainId, endpoints }: NetworkInfo): NetworkFacts {
  const { title, publicRpc, explorer } = networkFacts[name]
  if (ctx.settings.mode !== "sandbox") return { chainId, title, rpcUrl: publicRpc, explorer }
  // Only the sandbox shows its node's URL: elsewhere it may contain a key.
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

/** A merchant's name as pages show it; empty for an unknown one. */
async function merchantName(ctx: TxContext, id: string): Promise<string> {
  const row = await ctx.db.selectFrom("merchants").select("name").where("id", "=", id).executeTakeFirst()
  return shown(row?.name ?? "")
}
