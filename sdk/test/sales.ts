/**
 * Sells calls of shops to a stock client, with handlers, a network and connections that fail at each step: whoever was charged has the
 * content, and whoever has the content was charged.
 */
import type { Hex } from "viem"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { describe, expect, it } from "vitest"
import { newSandbox, type Sandbox } from "../../server/test/e2e/program.ts"
import { openBuyer } from "../src/buyer/buyer.ts"
import { type Fault, startFaultyProxy } from "./faulty-proxy.ts"
import type { Failure, Start } from "./shops.ts"
import { NETWORK, openWallets, type Wallets } from "./wallets.ts"

export const PRICE = "0.05"
export const UNITS = 50_000n

export interface Trade {
  sandbox: Sandbox
  wallets: Wallets
  apiKey: string
  paywall: { id: string; payTo: Hex }
}

/** Starts a sandbox without limits, which has a paywall. */
export async function openTrade(): Promise<Trade> {
  const buckets = ["AGENT", "CONSOLE", "FACILITATOR", "MERCHANT", "PAYWALL_VERIFY", "PUBLIC"]
  const sandbox = await newSandbox(Object.fromEntries(buckets.map(name => [`LIMIT_${name}`, "0"])), "migrated")
  await sandbox.start()
  const [shop] = sandbox.file().merchants
  const auth = { authorization: `Bearer ${shop.accessToken}` }
  const { body } = await sandbox.call("/api/console/paywalls", { name: "Weather", price: PRICE }, auth)
  const paywall = (await sandbox.call(`/api/paywalls/${body.id}`)).body
  return { sandbox, wallets: openWallets(sandbox), apiKey: shop.apiKey, paywall }
}

export const newAddress = (): Hex => privateKeyToAccount(generatePrivateKey()).address

export interface Case {
  settle?: "after" | "before"
  failures?: Failure[]
  /** By path; each is used once, in this order. */
  faults?: { path: RegExp; fault: Fault }[]
  /** The wallet is emptied while the handler runs. */
  isEmptied?: boolean
}

/** Sells one call to a new wallet, which repeats it with each retry token that it is given. */
export async function sell(
  { sandbox, wallets, apiKey, paywall }: Trade,
  start: Start,
  kind: "charge" | "paywall",
  { settle = "after", failures = [], faults = [] }: Case,
) {
  const left = [...faults]
  const proxy = await startFaultyProxy(sandbox.url, path => {
    const at = left.findIndex(each => each.path.test(path))
    return at < 0 ? undefined : left.splice(at, 1)[0]?.fault
  })
  const options = { baseUrl: proxy.url, apiKey, settle, timeoutMs: 20_000 }
  const payTo = kind === "charge" ? newAddress() : paywall.payTo
  const sells =
    kind === "charge" ? { charge: { ...options, price: PRICE, payTo } } : { paywall: { ...options, id: paywall.id } }
  const rest = [...failures]
  const shop = await start(sells as never, () => rest.shift())
  const wallet = await wallets.make()
  const { fetch: pay, sent } = wallets.payer(wallet)
  const statuses: number[] = []
  let content: string | undefined
  let token: string | undefined
  for (let tries = 0; tries < 12 && content === undefined; tries++) {
    const answer = await (token ? fetch(shop.url, { headers: { "sluice-retry-token": token } }) : pay(shop.url)).catch(
      () => undefined,
    )
    statuses.push(answer?.status ?? 0)
    if (answer?.status === 200) content = await answer.text().catch(() => undefined)
    const next = answer?.headers.get("sluice-retry-token") ?? undefined
    if (next === undefined && answer?.status !== 200) break
    token = next ?? token
  }
  const paid = await wallets.paid(wallet.address, payTo)
  const close = () => {
    proxy.stop()
    shop.stop()
  }
  return { statuses, content, paid, runs: shop.runs(), shop, close, payment: sent.at(-1), token, wallet, payTo, left }
}

const bought = { content: '{"forecast":"sunny"}', paid: [UNITS] }
const nothing = { content: undefined, paid: [] }

const cases: [string, Case, object][] = [
  ["serves once who pays", {}, { ...bought, statuses: [200], runs: 1 }],
  ["settles nothing when the handler throws", { failures: ["throws"] }, { ...nothing, statuses: [500] }],
  ["settles nothing when the handler answers 404", { failures: ["answers 404"] }, { ...nothing, statuses: [404] }],
  ["settles nothing when the handler breaks off", { failures: ["breaks off"] }, nothing],
  ["serves before a slow end, when it settles first", { settle: "before" }, { ...bought, statuses: [200] }],
  [
    "gives a payer another call when the handler throws after the settlement",
    { settle: "before", failures: ["throws", "answers 500"] },
    { ...bought, statuses: [500, 500, 200], runs: 3 },
  ],
]

/** The tests of every framework in `shops`, which sell the same. */
export function testSales(trade: () => Trade, shops: Record<string, Start>, kinds: ("charge" | "paywall")[]): void {
  describe.each(kinds)("%s", kind => {
    /** What each framework's shop sold, in parallel. */
    const everywhere = async (
      kind: "charge" | "paywall",
      of: Case,
      check: (sold: Awaited<ReturnType<typeof sell>>) => void | Promise<void>,
    ) => {
      await Promise.all(
        Object.entries(shops).map(async ([framework, start]) => {
          const sold = await sell(trade(), start, kind, of)
          expect(sold.left, framework).toEqual([])
          await check(sold)
          sold.close()
        }),
      )
    }

    const settles = kind === "charge" ? /^\/x402\/settle/ : /^\/api\/agent\/paywalls\/\w+\/settle/
    it.each(cases)("%s", async (_, of, expected) => {
      await everywhere(kind, of, sold => expect(sold).toMatchObject(expected))
    })

    it("serves who paid although the answer of the settlement was lost", async () => {
      // A paywall is asked for its terms first.
      const first =
        kind === "paywall"
          ? [
              { path: settles, fault: undefined },
              { path: settles, fault: undefined },
            ]
          : []
      const lost = { path: settles, fault: "answer lost" as const }
      await everywhere(kind, { faults: [...first, lost] }, sold => expect(sold).toMatchObject(bought))
      await everywhere(kind, { faults: [...first, lost, lost, lost] }, sold => expect(sold).toMatchObject(bought))
      await everywhere(kind, { settle: "before", faults: [...first.slice(1), lost, lost, lost] }, sold =>
        expect(sold).toMatchObject(bought),
      )
    })

    it("charges nobody while the payment can't be verified, and serves nobody", async () => {
      const fault = { path: /^\/x402\/verify/, fault: "500" as const }
      const start = kind === "charge" ? [{ path: /^\/x402\/verify/, fault: undefined }] : []
      await everywhere(kind, { faults: [...start, fault, fault, fault] }, sold => {
        expect(sold).toMatchObject({ ...nothing, statuses: [503], runs: 0 })
      })
    })

    it("lets a payment be served once, whoever sends it, and never its retry token after that", async () => {
      await Promise.all(
        Object.values(shops).map(async start => {
          const { wallets } = trade()
          const { shop, close, payment = "", wallet, payTo } = await sell(trade(), start, kind, {})
          const again = await Promise.all(
            Array.from({ length: 5 }, () => fetch(shop.url, { headers: { "payment-signature": payment } })),
          )
          for (const answer of again) expect([402, 409]).toContain(answer.status)
          for (const answer of again) expect(await answer.text()).not.toContain("sunny")
          expect(await wallets.paid(wallet.address, payTo)).toEqual([UNITS])
          close()
        }),
      )
    })
  })

  describe("charge, to a buyer who names its payment", () => {
    it.each([
      ["the answer is lost twice", 0, ["answer lost", "answer lost"]],
      ["the answer is lost, and those of the settlement", 3, ["answer lost"]],
    ] as [string, number, Fault[]][])(
      "gives the same answer again where %s",
      async (_name, lostSettlements, faults) => {
        const { sandbox, wallets, apiKey } = trade()
        await Promise.all(
          Object.entries(shops).map(async ([framework, start]) => {
            let settlements = lostSettlements
            const service = await startFaultyProxy(sandbox.url, path =>
              path === "/x402/settle" && settlements-- > 0 ? "answer lost" : undefined,
            )
            const payTo = newAddress()
            const shop = await start({ charge: { baseUrl: service.url, apiKey, price: PRICE, payTo } }, () => undefined)
            const left = [...faults]
            const { origin, pathname } = new URL(shop.url)
            const way = await startFaultyProxy(origin, (_, headers) =>
              headers["payment-signature"] || headers["sluice-retry-token"] ? left.shift() : undefined,
            )
            const account = await wallets.make()
            const tokens = [{ network: NETWORK, address: wallets.token, decimals: 6 }]
            const sent: string[] = []
            const recording: typeof fetch = async (input, init) => {
              sent.push(new Headers(init?.headers).get("payment-signature") ?? "")
              return await fetch(input, init)
            }
            const buyer = openBuyer({ wallet: account, tokens, maxPerPayment: "1", fetch: recording })
            const bought = await buyer.fetch(way.url + pathname)
            expect([bought.status, await bought.json(), left], framework).toEqual([200, { forecast: "sunny" }, []])
            expect([await wallets.paid(account.address, payTo), shop.runs()], framework).toEqual([[UNITS], 1])
            // What everyone reads on chain is not enough, and another address is another thing.
            const payment = sent.findLast(text => text !== "") ?? ""
            const { extensions: _, ...onChain } = JSON.parse(Buffer.from(payment, "base64").toString())
            const stranger = Buffer.from(JSON.stringify(onChain)).toString("base64")
            for (const [url, header] of [
              [shop.url, stranger],
              [`${shop.url}?day=2`, payment],
            ] as const) {
              const refused = await fetch(url, { headers: { "payment-signature": header } })
              expect([refused.status, (await refused.text()).includes("sunny")], framework).toEqual([402, false])
            }
            for (const server of [way, service, shop]) server.stop()
          }),
        )
      },
    )

    it("gives it a token where the connection broke on a call that failed after its payment", async () => {
      const { sandbox, wallets, apiKey } = trade()
      await Promise.all(
        Object.entries(shops).map(async ([framework, start]) => {
          const payTo = newAddress()
          const failures: Failure[] = ["breaks off"]
          const shop = await start(
            { charge: { baseUrl: sandbox.url, apiKey, price: PRICE, payTo, settle: "before" } },
            () => failures.shift(),
          )
          const account = await wallets.make()
          const tokens = [{ network: NETWORK, address: wallets.token, decimals: 6 }]
          const buyer = openBuyer({ wallet: account, tokens, maxPerPayment: "1" })
          const bought = await buyer.fetch(shop.url)
          expect([bought.status, await bought.json(), shop.runs()], framework).toEqual([200, { forecast: "sunny" }, 2])
          expect(await wallets.paid(account.address, payTo), framework).toEqual([UNITS])
          shop.stop()
        }),
      )
    })
  })
}
