/** What a console needs before sign-in: the ways to sign in, and the networks. */
import { checksummed } from "../../platform/chain/hex.ts"
import { networkFacts } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { SignInWay } from "../../platform/db/schema.ts"
import { isLoopbackHost } from "../../platform/http/hosts.ts"

/** This installation's public facts for its console. */
export async function consoleConfig(ctx: TxContext) {
  const { mode, baseUrl, consoleUrl } = ctx.settings
  const hasButtons = mode === "sandbox" && isLoopbackHost(new URL(consoleUrl).host)
  const merchants = hasButtons ? await sandboxMerchants(ctx) : []
  const provider = providerOf(ctx)
  const ways: SignInWay[] = ["wallet"]
  if (provider !== null) ways.unshift("provider")
  if (merchants.length > 0) ways.push("sandbox")
  return {
    name: new URL(baseUrl).host,
    mode,
    baseUrl,
    consoleUrl,
    signIn: { ways, provider, merchants },
    networks: ctx.chain.networks.map(({ name, chainId, token }) => ({
      network: name,
      title: networkFacts[name].title,
      chainId,
      explorer: mode === "sandbox" ? null : networkFacts[name].explorer,
      token: { address: checksummed(token.address), symbol: token.symbol, decimals: token.decimals },
    })),
  }
}

/** The host of the console's identity provider; null without one. */
const providerOf = ({ settings }: Pick<TxContext, "settings">): string | null =>
  settings.oidcClient ? new URL(settings.oidcIssuer).host : null

/** The merchants that the sandbox created. The sandbox's identity provider knows each merchant by its id. */
export const sandboxMerchants = (ctx: TxContext): Promise<{ id: string; name: string }[]> =>
  ctx.db
    .selectFrom("persons")
    .innerJoin("members", "members.person_id", "persons.id")
    .innerJoin("merchants", "merchants.id", "members.merchant_id")
    .select(["merchants.id", "merchants.name"])
    .where("iss", "=", ctx.settings.oidcIssuer)
    .whereRef("sub", "=", "merchants.id")
    .orderBy("merchants.created_at")
    .orderBy("merchants.id")
    .execute()
