/** One payment, checkout or payout, with its story and why it stands as it does. */
import { read } from "./client.ts"
import { useLive } from "./live.ts"
import type { Checkout, Page, Transaction } from "./types.ts"

/** What can be done now; `route` is a method and a path, or null. */
export interface NextAction {
  text: string
  route: string | null
}

interface Standing {
  state: string
  word: string
  why: string
  next: NextAction[]
}

export interface StoryEntry {
  at: string
  kind: string
  text: string
  actor?: { kind: string; id: string | null }
  txHash: string | null
  object: string | null
}

interface Explained {
  data: StoryEntry[]
  status: Standing
}

export interface Part {
  id: string
  kind: string
  state: string
  recipient: string
  amount: string
  currency: string
  txHash: string | null
  createdAt: string
}

/** A payment or a checkout, with all that belongs to it. */
export interface Story extends Explained {
  payments?: {
    id: string
    status: string
    exception: string | null
    payer: string
    amount: string
    currency: string
    baseUnits: string
    chain: string
    txHash: string
    createdAt: string
    /** Whether accepting it buys something. */
    buys: boolean
    /** False if it can only be returned. */
    acceptable: boolean
    returnAddress: string | null
    /** The part of a payment that counts which waits for a decision. */
    surplus: string | null
  }[]
  checkout?: Pick<Checkout, "id" | "amount" | "currency" | "description" | "customerEmail" | "payerInfo" | "metadata">
  address?: { address: string; chain: string; owner: string; opensAt: string }
  transfers?: { txHash: string; from: string; blockNumber: string; state: string }[]
  payouts?: Part[]
}

export const isCheckoutId = (id: string): boolean => id.startsWith("cs_")
/** Of these one request answers everything; of all others a timeline. */
const isWhole = (id: string): boolean => /^(cs|pay|grant)_/.test(id)

/** Read again every five seconds while it is seen. */
export const useStory = (id: string) =>
  useLive(["story", id], signal =>
    read<Story>(`/api/console/${isWhole(id) ? "payments" : "timeline"}/${id}`, {}, signal),
  )

export const useCheckout = (id: string | null) =>
  useLive(["checkout", id], signal => read<Checkout>(`/api/console/checkouts/${id}`, {}, signal), {
    enabled: id !== null,
    every: 10_000,
  })

/** A movement by its id; null where the list has none. */
export const useTransaction = (id: string, enabled: boolean) =>
  useLive(
    ["transaction", id],
    async signal => {
      const { data } = await read<Page<Transaction>>("/api/console/transactions", { q: id, limit: 10 }, signal)
      return data.find(row => row.id === id) ?? data[0] ?? null
    },
    { enabled, every: 10_000 },
  )
