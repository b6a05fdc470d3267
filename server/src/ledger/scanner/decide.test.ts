import { expect, it } from "vitest"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { QuorumView } from "../../platform/chain/quorum.ts"
import type { Row } from "../../platform/db/schema.ts"
import { type Changes, decide } from "./decide.ts"
import type { Observation } from "./observe-chain.ts"

const now = new Date("2026-01-01T00:00:00Z")
const hash = (letter: string) => `0x${letter.repeat(64)}` as Hash
const network = { name: "base", chainId: 8453, endpoints: { length: 3 }, confirmations: 3n } as NetworkInfo

/** A transfer in block 100; a test adds what the quorum knows about it. */
const transfer = (facts: Partial<Row<"transfers">> = {}) =>
  ({
    id: 1n,
    state: "seen",
    tx_hash: hash("a"),
    token: `0x${"1".repeat(40)}` as Address,
    k: 0,
    value: 5n,
    to_address: `0x${"2".repeat(40)}` as Address,
    block_number: 100n,
    block_hash: hash("b"),
    suspect_at: null,
    single_source: false,
    ...facts,
  }) as Row<"transfers">

const block = (number: bigint, letter: string) => ({ block: { number, hash: hash(letter), time: now }, votes: 3 })

/** Decides about transfers that are all in doubt, and the blocks that they are in. */
function decided(
  rows: Row<"transfers">[],
  quorum: Partial<QuorumView>,
  { seen = {}, on = network }: { seen?: Partial<Observation>; on?: NetworkInfo } = {},
): Changes {
  const cursor = { block_number: 99n, block_hash: hash("c"), block_time: now, lag_blocks: 0n } as Row<"cursors">
  const silent: Partial<QuorumView> = {
    head: 110n,
    finalized: 0n,
    blockAt: () => undefined,
    depthOf: () => 0n,
    depthAlone: () => 0n,
    votesWithout: () => 0,
    standingOf: () => "open",
    receiptOf: () => undefined,
  }
  const view = { ...silent, ...quorum } as QuorumView
  const blocks = rows.map(row => ({
    number: row.block_number,
    hash: row.block_hash,
    seen: row.state === "seen",
    confirmed: row.state === "confirmed",
    suspected: row.suspect_at !== null,
  }))
  const observation = {
    cursor,
    deposits: new Map(),
    submissions: [],
    found: [],
    isMore: false,
    scannedTo: 99n,
    backfills: [],
    doubted: [],
    window: { deepest: 108n, finalized: 0n, from: 79n, to: 99n, isOdd: false },
    displaced: blocks.filter(block => (view.blockAt(block.number)?.block.hash ?? block.hash) !== block.hash),
    reorged: false,
    allCompared: true,
    calls: [],
    troubles: [],
    ...seen,
    quorum: view,
  } as Observation
  return decide(on, observation, { blocks, doubted: rows }, { now, maxScanLag: 100 })
}

const named = [{ number: 100n, hash: hash("b") }]

it("without evidence nothing changes", () => {
  const { doubts, confirmed, confirmedAlone, final, submissions, suspected, restored } = decided([transfer()], {})
  expect([doubts, confirmed, confirmedAlone, final, submissions, suspected, restored]).toEqual([
    [],
    [],
    [],
    [],
    [],
    [],
    [],
  ])
})

it("a block's transfers are confirmed at its depth, not before, and final when it is", () => {
  expect(decided([transfer()], { depthOf: () => 2n }).confirmed).toEqual([])
  expect(decided([transfer()], { depthOf: () => 3n }).confirmed).toMatchObject(named)
  const confirmed = transfer({ state: "confirmed" })
  expect(decided([confirmed], { depthOf: () => 9n, finalized: 99n }).final).toEqual([])
  expect(decided([confirmed], { depthOf: () => 9n, finalized: 100n }).final).toMatchObject(named)
  // One round takes only one of the two steps.
  expect(decided([transfer()], { depthOf: () => 9n, finalized: 100n }).final).toEqual([])
})

it("another block at its height makes it suspected; it is gone when a quorum has no receipt of it either", () => {
  const displaced = { blockAt: () => block(100n, "d") }
  expect(decided([transfer()], displaced)).toMatchObject({ suspected: named, doubts: [] })
  const gone = decided([transfer()], { ...displaced, votesWithout: () => 2 })
  expect(gone.doubts).toMatchObject([{ change: { state: "gone", run_at: now } }])
  expect(gone.confirmed).toEqual([])
  const back = { blockAt: () => block(100n, "b"), depthOf: () => 3n }
  expect(decided([transfer({ suspect_at: now })], back)).toMatchObject({ restored: named, doubts: [] })
})

it("one endpoint must say so twice, 30 seconds apart", () => {
  const on = { ...network, endpoints: { length: 1 } }
  const nowhere = { blockAt: () => block(100n, "d"), votesWithout: () => 1 }
  const since = (ms: number) =>
    decided([transfer({ suspect_at: new Date(now.getTime() - ms) })], nowhere, { on }).doubts
  expect(decided([transfer()], nowhere, { on })).toMatchObject({ suspected: named, doubts: [] })
  expect(since(29_999)).toEqual([])
  expect(since(30_000)).toMatchObject([{ change: { state: "gone" } }])
})

it("one of two endpoints confirms alone; one of three does not", () => {
  const alone = { depthAlone: () => 3n }
  const on = { ...network, endpoints: { length: 2 } }
  expect(decided([transfer()], alone, { on }).confirmedAlone).toMatchObject(named)
  expect(decided([transfer()], alone).confirmedAlone).toEqual([])
  const single = transfer({ single_source: true })
  expect(decided([single], alone, { on }).singles).toEqual([])
  expect(decided([single], { ...alone, standingOf: () => "single" }, { on }).singles).toEqual([single])
})

it("what one endpoint alone reports is suspected by itself, and gone when neither has it", () => {
  const on = { ...network, endpoints: { length: 2 } }
  const single = transfer({ single_source: true })
  const displaced = { blockAt: () => block(100n, "d") }
  const seen = { displaced: [] }
  expect(decided([single], displaced, { on, seen }).doubts).toMatchObject([{ change: { suspect_at: now } }])
  const nowhere = { votesWithout: () => 2 }
  expect(decided([single], nowhere, { on, seen }).doubts).toMatchObject([{ change: { state: "gone" } }])
})

it("the checkpoint moves as far as was surely read, back to the finalized block after a reorg, and not before all is compared", () => {
  const blockAt = (height: bigint) => block(height, "e")
  const at = (seen: Partial<Observation>) => decided([], { blockAt, finalized: 80n }, { seen }).cursor
  expect(at({ scannedTo: 105n })).toMatchObject({ block_number: 105n, block_hash: hash("e"), lag_blocks: 5n })
  expect(at({ scannedTo: 98n })).not.toHaveProperty("block_number")
  expect(at({ scannedTo: 105n, reorged: true })).toMatchObject({ block_number: 80n })
  expect(at({ scannedTo: 105n, reorged: true, allCompared: false })).not.toHaveProperty("block_number")
})

it("a deposit that the scan had left is back in it when its own scan has reached the head", () => {
  const to = (scannedTo: bigint) => decided([], {}, { seen: { backfills: [{ ids: [7n], scannedTo }] } }).caughtUp
  expect(to(109n)).toEqual([{ ids: [7n], upTo: 109n }])
  expect(to(110n)).toEqual([{ ids: [7n], upTo: undefined }])
})
