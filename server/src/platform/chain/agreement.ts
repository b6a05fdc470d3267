/**
 * Finds what the endpoints of a network agree on in one round, from what each reports. Pure. Endpoints agree on a
 * statement if at least a quorum of them makes it, and fewer make any other statement about the same thing. Whole
 * statements are compared: a log with its value and sender, a receipt with its logs, a block with its time.
 */
import type { AuthorizationUse } from "./authorization-uses.ts"
import type { Address, Hash } from "./hex.ts"
import type { Block, Receipt, Transfer } from "./transfers.ts"

/** Logs of these addresses in these blocks, both ends included, were read completely. */
interface Reading {
  from: bigint
  to: bigint
  addresses: ReadonlySet<Address>
}

/** The report of one endpoint. */
export interface Voter {
  /** The endpoint's position in the setting, from 0. */
  position: number
  head: Block
  /** Undefined if the endpoint does not report one. */
  finalized: bigint | undefined
  /** Canonical blocks by height, as this endpoint reports them. */
  blocks: Map<bigint, Block>
  /** Receipts by hash; null if the endpoint has none. */
  receipts: Map<Hash, Receipt | null>
  /**
   * The logs that the endpoint reported in scans, by {@link keyOf}. A log that was reported in two versions within a
   * round is listed twice.
   */
  logs: Map<string, Transfer[]>
  readings: Reading[]
}

/**
 * The verdict on a reported log. `agreed`: a quorum has it. `single`: the network has two endpoints, one has it, and
 * the other does not contradict it. `denied`: a quorum has read the block and does not have it. `open`: none of these,
 * so the scan must not advance beyond its block.
 */
export type LogAgreement = "agreed" | "single" | "denied" | "open"

/** Identifies a transfer, however often its transaction is mined. */
export const keyOf = (transfer: { txHash: Hash; token: Address; to: Address; k: number }): string =>
  `${transfer.txHash} ${transfer.token} ${transfer.to} ${transfer.k}`

/** Everything about a log that endpoints must agree on, except the time of its block. */
export const statementOf = (log: Transfer): string =>
  `${keyOf(log)} ${log.from} ${log.value} ${log.blockNumber} ${log.blockHash} ${log.logIndex}`

/**
 * Whether two endpoints report the same log, ignoring the time of its block. The comparison does not build the
 * statements of the logs.
 */
export const isSameLog = (a: Transfer, b: Transfer): boolean =>
  a === b ||
  (a.logIndex === b.logIndex &&
    a.value === b.value &&
    a.k === b.k &&
    a.blockNumber === b.blockNumber &&
    a.txHash === b.txHash &&
    a.blockHash === b.blockHash &&
    a.from === b.from &&
    a.to === b.to &&
    a.token === b.token)

const isSameBlock = (a: Block, b: Block): boolean =>
  a.number === b.number && a.hash === b.hash && a.time.getTime() === b.time.getTime()

/** Compares receipts without their cost and position, which some nodes leave out. */
const isSameReceipt = (a: Receipt, b: Receipt): boolean =>
  a === b ||
  (a.txHash === b.txHash &&
    a.succeeded === b.succeeded &&
    a.blockNumber === b.blockNumber &&
    a.blockHash === b.blockHash &&
    a.transfers.length === b.transfers.length &&
    a.uses.length === b.uses.length &&
    a.transfers.every((each, i) => isSameLog(each, b.transfers[i] as Transfer)) &&
    a.uses.every((each, i) => isSameUse(each, b.uses[i] as AuthorizationUse)))

const isSameUse = (a: AuthorizationUse, b: AuthorizationUse): boolean =>
  a.token === b.token && a.payer === b.payer && a.nonce === b.nonce

const inReceipts = new WeakMap<Receipt, Map<string, Transfer>>()

/** The transfer with this key in a receipt. A receipt is indexed once, because it may have thousands of transfers. */
function inReceipt(receipt: Receipt, key: string): Transfer | undefined {
  let index = inReceipts.get(receipt)
  if (!index) {
    index = new Map(receipt.transfers.map(each => [keyOf(each), each]))
    inReceipts.set(receipt, index)
  }
  return index.get(key)
}

/** Whether a receipt shows a transfer with this key. */
export const hasTransfer = (receipt: Receipt, key: string): boolean =>
  receipt.succeeded && inReceipt(receipt, key) !== undefined

/**
 * The value that at least `needed` endpoints state, and that more endpoints state than any other value. A search of the
 * list is enough, because endpoints are few.
 */
function agreedOn<T>(
  said: readonly T[],
  isSame: (a: T, b: T) => boolean,
  needed: number,
): { value: T; votes: number } | undefined {
  const tally: { value: T; votes: number }[] = []
  for (const value of said) {
    const known = tally.find(each => isSame(each.value, value))
    if (known) known.votes++
    else tally.push({ value, votes: 1 })
  }
  const [first, second] = tally.sort((a, b) => b.votes - a.votes)
  return first && first.votes >= needed && first.votes > (second?.votes ?? 0) ? first : undefined
}

const isEqual = <T>(a: T, b: T): boolean => a === b

/** The largest value that at least `needed` endpoints reach; undefined if fewer have a value. */
export const reachedBy = (values: readonly (bigint | undefined)[], needed: number): bigint | undefined =>
  values.filter(value => value !== undefined).sort((a, b) => (a < b ? 1 : a > b ? -1 : 0))[needed - 1]

/** The block that a quorum reports at a height, including its time. */
export function blockAgreed(voters: readonly Voter[], height: bigint, needed: number) {
  const said = voters.map(voter => voter.blocks.get(height)).filter(block => block !== undefined)
  const agreed = agreedOn(said, isSameBlock, needed)
  return agreed && { block: agreed.value, votes: agreed.votes }
}

/**
 * The receipt that a quorum has, in a block that a quorum reports; null if a quorum has none; undefined if this is not
 * known. The receipt's cost is the lower of two endpoints' costs, or the middle of three.
 */
export function receiptAgreed(voters: readonly Voter[], hash: Hash, needed: number): Receipt | null | undefined {
  const answers = voters.map(voter => voter.receipts.get(hash))
  const receipts = answers.filter(receipt => receipt !== null && receipt !== undefined)
  const agreed = agreedOn(receipts, isSameReceipt, needed)?.value
  if (agreed && blockAgreed(voters, agreed.blockNumber, needed)?.block.hash === agreed.blockHash) {
    const same = receipts.filter(receipt => isSameReceipt(receipt, agreed))
    return {
      ...agreed,
      position: agreedOn(
        same.map(({ position }) => position),
        isEqual,
        needed,
      )?.value,
      cost: reachedBy(
        same.map(({ cost }) => cost),
        needed,
      ),
    }
  }
  return answers.filter(receipt => receipt === null).length >= needed ? null : undefined
}

/** What one voter says about a log: everything that its verdict needs, looked up once. */
interface Testimony {
  voter: Voter
  /**
   * The voter's statements about the log's key. Statements are counted as votes, so a repeated one is listed once.
   * There are several statements if the voter contradicts itself.
   */
  said: Transfer[]
  /** Whether the voter has exactly this log, and makes no other statement about its key. */
  affirms: boolean
  /** Whether the voter has a receipt without exactly this log. */
  lacks: boolean
}

function testimonyOf(voter: Voter, log: Transfer, key: string): Testimony {
  const receipt = voter.receipts.get(log.txHash)
  const proof = receipt?.succeeded ? inReceipt(receipt, key) : undefined
  const said = proof ? [proof] : []
  for (const each of voter.logs.get(key) ?? []) if (!said.some(known => isSameLog(known, each))) said.push(each)
  const lacks = !!receipt && !(proof && isSameLog(proof, log))
  const isAlone = said.length > 0 && said.every(each => isSameLog(each, log))
  const inBlock = (voter.blocks.get(log.blockNumber)?.hash ?? log.blockHash) === log.blockHash
  return { voter, said, affirms: isAlone && inBlock && !lacks, lacks }
}

const testimoniesOn = (voters: readonly Voter[], log: Transfer): Testimony[] => {
  const key = keyOf(log)
  return voters.map(voter => testimonyOf(voter, log, key))
}

/** Whether a voter read the logs of this block and address, and this one was not among them. */
const omits = ({ voter, affirms }: Testimony, log: Transfer): boolean =>
  !affirms &&
  voter.readings.some(
    ({ from, to, addresses }) => from <= log.blockNumber && log.blockNumber <= to && addresses.has(log.to),
  )

/** Whether a voter denies the log: it has another log or block, a receipt without it, or neither log nor receipt. */
function contradicts(each: Testimony, log: Transfer): boolean {
  if (each.affirms) return false
  const block = each.voter.blocks.get(log.blockNumber)
  if (each.said.length > 0 || each.lacks) return true
  if (block && block.hash !== log.blockHash) return true
  return each.voter.receipts.get(log.txHash) === null && (omits(each, log) || block?.hash === log.blockHash)
}

/** The verdict on a log among the voters of a network with this many endpoints. */
export const standingOf = (voters: readonly Voter[], log: Transfer, endpoints: number): LogAgreement =>
  standingBy(testimoniesOn(voters, log), log, endpoints)

function standingBy(testimonies: readonly Testimony[], log: Transfer, endpoints: number): LogAgreement {
  const needed = votesNeeded(endpoints)
  const voices = testimonies.filter(each => each.affirms).length
  const rivals = testimonies.flatMap(({ said }) => said.filter(each => !isSameLog(each, log)))
  if (voices >= needed && !agreedOn(rivals, isSameLog, voices)) return "agreed"
  const against = testimonies.filter(each => contradicts(each, log))
  if (endpoints === 2) {
    if (against.length >= needed) return "denied"
    return voices === 1 && against.length === 0 ? "single" : "open"
  }
  const without = testimonies.filter(each => against.includes(each) || omits(each, log)).length
  return without >= needed ? "denied" : "open"
}

/** The verdict on a log, and whether every voter has it. Voters can disagree only about logs that some voter lacks. */
export function verdictOn(
  voters: readonly Voter[],
  log: Transfer,
  endpoints: number,
): { standing: LogAgreement; isUnanimous: boolean } {
  const testimonies = testimoniesOn(voters, log)
  return {
    standing: standingBy(testimonies, log, endpoints),
    isUnanimous: testimonies.every(each => each.affirms),
  }
}

/**
 * The time of a log's block according to the required number of voters. If a voter was not asked for the block, the
 * time in its log counts. Undefined if the voters do not agree.
 */
export function timeOf(voters: readonly Voter[], log: Transfer, needed: number): Date | undefined {
  const said = testimoniesOn(voters, log).flatMap(({ voter, affirms, said }) => {
    const block = voter.blocks.get(log.blockNumber)
    if (block?.hash === log.blockHash) return needed > 1 || affirms ? [block.time] : []
    const own = affirms ? said[0]?.blockTime : undefined
    return own ? [own] : []
  })
  return agreedOn(said, (a, b) => a.getTime() === b.getTime(), needed)?.value
}

/** How many endpoints must agree: two, or one if there is only one. */
export const votesNeeded = (endpoints: number): number => Math.min(endpoints, 2)

/** Endpoints that differ from the rest. If only two disagree, both are listed. Positions count from 0. */
export interface Dissent {
  /** Endpoints with contradictions that no honest node produces: two contents of one block. */
  proven: Set<number>
  /** Endpoints with differences that can also come from lag, or from the first seconds of a reorg. */
  apparent: Set<number>
}

/** Which endpoints differ in anything that a round requested. `logs` are the reported logs. */
export function dissentAmong(voters: readonly Voter[], logs: readonly Transfer[], endpoints: number): Dissent {
  const needed = votesNeeded(endpoints)
  const dissent: Dissent = { proven: new Set(), apparent: new Set() }
  if (endpoints < 2) return dissent
  const blocks = topics<Block>()
  const heights = topics<Hash>()
  const receipts = topics<Receipt>()
  const contents = topics<Transfer>()
  for (const voter of voters) {
    for (const [height, block] of voter.blocks) {
      blocks.say(block.hash, voter.position, block)
      heights.say(`${height}`, voter.position, block.hash)
    }
    for (const receipt of voter.receipts.values())
      if (receipt) receipts.say(`${receipt.txHash} ${receipt.blockHash}`, voter.position, receipt)
  }
  const note = (positions: Set<number>, found: readonly number[]) => {
    for (const position of found) positions.add(position)
  }
  for (const log of logs) {
    const testimonies = testimoniesOn(voters, log)
    for (const { voter, said } of testimonies)
      for (const each of said) contents.say(`${keyOf(each)} ${each.blockHash}`, voter.position, each)
    note(dissent.apparent, minorityOn(testimonies, log, endpoints))
  }
  for (const said of blocks.all()) note(dissent.proven, minority(said, isSameBlock, needed))
  for (const said of receipts.all()) note(dissent.proven, minority(said, isSameReceipt, needed))
  for (const said of contents.all()) note(dissent.proven, minority(said, isSameLog, needed))
  for (const said of heights.all()) note(dissent.apparent, minority(said, isEqual, needed))
  for (const said of receiptsSaid(voters)) note(dissent.apparent, minority(said, isSameAnswer, needed))
  return dissent
}

/** What one endpoint, by its position, says about a topic. */
interface Said<T> {
  position: number
  value: T
}

/** What endpoints say, by topic; each endpoint's statement once. */
function topics<T>() {
  const known = new Map<string, Said<T>[]>()
  return {
    all: () => known.values(),
    say: (topic: string, position: number, value: T) => {
      const said = known.get(topic)
      if (!said) known.set(topic, [{ position, value }])
      else if (!said.some(each => each.position === position && each.value === value)) said.push({ position, value })
    },
  }
}

const isSameAnswer = (a: Receipt | null, b: Receipt | null): boolean => (a && b ? isSameReceipt(a, b) : a === b)

/**
 * What voters report for each transaction. A missing receipt counts as a statement only if the voter has the block that
 * another voter names, and calls it final. Before that, the voter's index may lag.
 */
function receiptsSaid(voters: readonly Voter[]): Said<Receipt | null>[][] {
  const hashes = new Set(voters.flatMap(({ receipts }) => [...receipts.keys()]))
  return [...hashes].map(hash => {
    const reported = voters.flatMap(({ receipts }) => receipts.get(hash) ?? [])
    return voters.flatMap(({ position, receipts, blocks, finalized = 0n }): Said<Receipt | null>[] => {
      const receipt = receipts.get(hash)
      if (receipt) return [{ position, value: receipt }]
      const isDenied = reported.some(
        ({ blockNumber, blockHash }) => blockNumber <= finalized && blocks.get(blockNumber)?.hash === blockHash,
      )
      return receipt === null && isDenied ? [{ position, value: null }] : []
    })
  })
}

/** The voters that differ from the quorum; all of them if there is no quorum. */
function minority<T>(said: readonly Said<T>[], isSame: (a: T, b: T) => boolean, needed: number): number[] {
  const [first] = said
  if (!first || said.every(each => isSame(each.value, first.value))) return []
  const agreed = agreedOn(said, (a, b) => isSame(a.value, b.value), needed)
  return said.filter(({ value }) => !agreed || !isSame(value, agreed.value.value)).map(({ position }) => position)
}

function minorityOn(testimonies: readonly Testimony[], log: Transfer, endpoints: number): number[] {
  const standing = standingBy(testimonies, log, endpoints)
  const differing =
    standing === "agreed"
      ? testimonies.filter(each => contradicts(each, log) || omits(each, log))
      : standing === "denied"
        ? testimonies.filter(({ said }) => said.length > 0)
        : testimonies.some(each => contradicts(each, log))
          ? testimonies
          : []
  return differing.map(({ voter }) => voter.position)
}
