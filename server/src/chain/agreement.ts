/**
 * What the endpoints of a network report in one round, and what they agree on. Pure. A statement is agreed on when at
 * least a quorum of endpoints makes it, and more than make any other statement about the same thing. Whole statements
 * are compared: a log with its value and sender, a receipt with its logs, a block with its time.
 */
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
  /** Its position in the setting, from 0. */
  position: number
  head: Block
  /** Undefined where the endpoint does not know. */
  finalized: bigint | undefined
  /** Canonical blocks by height, as this endpoint reports them. */
  blocks: Map<bigint, Block>
  /** Receipts by hash; null where it has none. */
  receipts: Map<Hash, Receipt | null>
  /**
   * The logs it reported in scans, by {@link keyOf}. A log that it reported in two versions within a round is listed
   * twice.
   */
  logs: Map<string, Transfer[]>
  readings: Reading[]
}

/**
 * The verdict on a reported log. `agreed`: a quorum has it. `single`: the network has two endpoints, one has it, and
 * the other does not contradict. `denied`: a quorum has read the block and does not have it. `open`: none of these, so
 * the scan must not advance beyond its block.
 */
export type Standing = "agreed" | "single" | "denied" | "open"

/** Identifies a transfer, however often its transaction is mined. */
export const keyOf = (transfer: { txHash: Hash; token: Address; to: Address; k: number }): string =>
  `${transfer.txHash} ${transfer.token} ${transfer.to} ${transfer.k}`

/** Everything about a log that endpoints must agree on, except the time of its block. */
export const statementOf = (log: Transfer): string =>
  `${keyOf(log)} ${log.from} ${log.value} ${log.blockNumber} ${log.blockHash} ${log.logIndex}`

const blockStatement = ({ number, hash, time }: Block): string => `${number} ${hash} ${time.getTime()}`

/** A receipt without its cost, which some nodes leave out. */
const receiptStatement = ({ txHash, succeeded, blockNumber, blockHash, transfers, uses }: Receipt): string =>
  [
    txHash,
    succeeded,
    blockNumber,
    blockHash,
    ...transfers.map(statementOf),
    ...uses.map(({ token, payer, nonce }) => `${token} ${payer} ${nonce}`),
  ].join(" ")

/** The statement that at least `needed` endpoints make, and more than make any other. */
function agreedOn<T>(
  said: readonly T[],
  statement: (value: T) => string,
  needed: number,
): { value: T; votes: number } | undefined {
  const tally = new Map<string, { value: T; votes: number }>()
  for (const value of said) {
    const text = statement(value)
    tally.set(text, { value, votes: (tally.get(text)?.votes ?? 0) + 1 })
  }
  const [first, second] = [...tally.values()].sort((a, b) => b.votes - a.votes)
  return first && first.votes >= needed && first.votes > (second?.votes ?? 0) ? first : undefined
}

/** The largest value that at least `needed` endpoints reach; undefined where fewer have a value. */
export const reachedBy = (values: readonly (bigint | undefined)[], needed: number): bigint | undefined =>
  values.filter(value => value !== undefined).sort((a, b) => (a < b ? 1 : a > b ? -1 : 0))[needed - 1]

/** The block that a quorum reports at a height, including its time. */
export function blockAgreed(voters: readonly Voter[], height: bigint, needed: number) {
  const said = voters.map(voter => voter.blocks.get(height)).filter(block => block !== undefined)
  const agreed = agreedOn(said, blockStatement, needed)
  return agreed && { block: agreed.value, votes: agreed.votes }
}

/**
 * The receipt that a quorum has, in a block that a quorum reports; null when a quorum has none; undefined when this is
 * not known. Its cost is the lower one of two endpoints, the middle one of three.
 */
export function receiptAgreed(voters: readonly Voter[], hash: Hash, needed: number): Receipt | null | undefined {
  const answers = voters.map(voter => voter.receipts.get(hash))
  const receipts = answers.filter(receipt => receipt !== null && receipt !== undefined)
  const agreed = agreedOn(receipts, receiptStatement, needed)?.value
  if (agreed && blockAgreed(voters, agreed.blockNumber, needed)?.block.hash === agreed.blockHash) {
    const same = receipts.filter(receipt => receiptStatement(receipt) === receiptStatement(agreed))
    return {
      ...agreed,
      position: agreedOn(same, ({ position }) => `${position}`, needed)?.value.position,
      cost: reachedBy(
        same.map(({ cost }) => cost),
        needed,
      ),
    }
  }
  return answers.filter(receipt => receipt === null).length >= needed ? null : undefined
}

/**
 * The statements that a voter makes about a log's key, each once however often it makes it, because they are counted as
 * votes. More than one where it contradicts itself.
 */
function saidOf(voter: Voter, log: Transfer): Transfer[] {
  const key = keyOf(log)
  const receipt = voter.receipts.get(log.txHash)
  const inReceipt = receipt?.succeeded ? receipt.transfers.filter(each => keyOf(each) === key) : []
  const said = [...inReceipt, ...(voter.logs.get(key) ?? [])]
  return [...new Map(said.map(each => [statementOf(each), each])).values()]
}

/** Whether a voter has exactly this log, and makes no other statement about it. */
function affirms(voter: Voter, log: Transfer): boolean {
  const said = saidOf(voter, log)
  const statement = statementOf(log)
  if (said.length === 0 || said.some(each => statementOf(each) !== statement)) return false
  return (voter.blocks.get(log.blockNumber)?.hash ?? log.blockHash) === log.blockHash && !lacksInReceipt(voter, log)
}

const lacksInReceipt = (voter: Voter, log: Transfer): boolean => {
  const receipt = voter.receipts.get(log.txHash)
  if (!receipt) return false
  const statement = statementOf(log)
  return !(receipt.succeeded && receipt.transfers.some(each => statementOf(each) === statement))
}

/** Whether a voter read the logs of this block and address, and this one was not among them. */
function omits(voter: Voter, log: Transfer): boolean {
  if (affirms(voter, log)) return false
  return voter.readings.some(
    ({ from, to, addresses }) => from <= log.blockNumber && log.blockNumber <= to && addresses.has(log.to),
  )
}

/** Whether a voter denies the log: it has another log or block, a receipt without it, or neither log nor receipt. */
function contradicts(voter: Voter, log: Transfer): boolean {
  if (affirms(voter, log)) return false
  const block = voter.blocks.get(log.blockNumber)
  if (saidOf(voter, log).length > 0 || lacksInReceipt(voter, log)) return true
  if (block && block.hash !== log.blockHash) return true
  return voter.receipts.get(log.txHash) === null && (omits(voter, log) || block?.hash === log.blockHash)
}

/** The verdict on a log among the voters of a network with this many endpoints. */
export function standingOf(voters: readonly Voter[], log: Transfer, endpoints: number): Standing {
  const needed = votesNeeded(endpoints)
  const statement = statementOf(log)
  const voices = voters.filter(voter => affirms(voter, log)).length
  const rivals = voters.flatMap(voter => saidOf(voter, log)).filter(each => statementOf(each) !== statement)
  if (voices >= needed && !agreedOn(rivals, statementOf, voices)) return "agreed"
  const against = voters.filter(voter => contradicts(voter, log))
  if (endpoints === 2) {
    if (against.length >= needed) return "denied"
    return voices === 1 && against.length === 0 ? "single" : "open"
  }
  const without = voters.filter(voter => against.includes(voter) || omits(voter, log)).length
  return without >= needed ? "denied" : "open"
}

/**
 * The time of a log's block according to the required number of voters: the block's own time, or the time in the log
 * where a voter was not asked for the block. Undefined where they do not agree.
 */
export function timeOf(voters: readonly Voter[], log: Transfer, needed: number): Date | undefined {
  const said = voters.flatMap(voter => {
    const block = voter.blocks.get(log.blockNumber)
    if (block?.hash === log.blockHash) return needed > 1 || affirms(voter, log) ? [block.time] : []
    const own = affirms(voter, log) ? saidOf(voter, log)[0]?.blockTime : undefined
    return own ? [own] : []
  })
  return agreedOn(said, time => `${time.getTime()}`, needed)?.value
}

/** How many endpoints must agree: two, or the only one. */
export const votesNeeded = (endpoints: number): number => Math.min(endpoints, 2)

/** Endpoints that differ from the others; of two that differ, both. Positions count from 0. */
export interface Dissent {
  /** Contradictions that no honest node produces: two contents of one block. */
  proven: Set<number>
  /** Differences that also come from a node that lags, or from the first seconds of a reorg. */
  apparent: Set<number>
}

/** Which endpoint differs from which, over everything asked in a round; `logs` are those that were reported. */
export function dissentAmong(voters: readonly Voter[], logs: readonly Transfer[], endpoints: number): Dissent {
  const needed = votesNeeded(endpoints)
  const dissent: Dissent = { proven: new Set(), apparent: new Set() }
  if (endpoints < 2) return dissent
  const contents = new Map<string, { position: number; text: string }[]>()
  const heights = new Map<string, { position: number; text: string }[]>()
  const say = (groups: typeof contents, topic: string, position: number, text: string) =>
    void groups.set(topic, [...(groups.get(topic) ?? []), { position, text }])
  for (const { position, blocks, receipts } of voters) {
    for (const [height, block] of blocks) {
      say(contents, `block ${block.hash}`, position, blockStatement(block))
      say(heights, `${height}`, position, block.hash)
    }
    for (const receipt of receipts.values())
      if (receipt) say(contents, `${receipt.txHash} ${receipt.blockHash}`, position, receiptStatement(receipt))
  }
  for (const log of logs)
    for (const voter of voters)
      for (const each of saidOf(voter, log))
        say(contents, `${keyOf(each)} ${each.blockHash}`, voter.position, statementOf(each))
  for (const said of receiptsSaid(voters)) for (const position of minority(said, needed)) dissent.apparent.add(position)
  for (const said of contents.values()) for (const position of minority(said, needed)) dissent.proven.add(position)
  for (const said of heights.values()) for (const position of minority(said, needed)) dissent.apparent.add(position)
  for (const log of logs) for (const position of minorityOn(voters, log, endpoints)) dissent.apparent.add(position)
  return dissent
}

/**
 * What voters report for each transaction. Having no receipt counts as a statement only if the voter has the block that
 * another one names, and calls it final: before that its index may lag.
 */
function receiptsSaid(voters: readonly Voter[]): { position: number; text: string }[][] {
  const hashes = new Set(voters.flatMap(({ receipts }) => [...receipts.keys()]))
  return [...hashes].map(hash => {
    const reported = voters.flatMap(({ receipts }) => receipts.get(hash) ?? [])
    return voters.flatMap(({ position, receipts, blocks, finalized = 0n }) => {
      const receipt = receipts.get(hash)
      if (receipt) return [{ position, text: receiptStatement(receipt) }]
      const isDenied = reported.some(
        ({ blockNumber, blockHash }) => blockNumber <= finalized && blocks.get(blockNumber)?.hash === blockHash,
      )
      return receipt === null && isDenied ? [{ position, text: "none" }] : []
    })
  })
}

/** The voters that differ from the quorum; all of them where there is no quorum. */
function minority(said: readonly { position: number; text: string }[], needed: number): number[] {
  if (new Set(said.map(({ text }) => text)).size < 2) return []
  const agreed = agreedOn(said, ({ text }) => text, needed)?.value.text
  return said.filter(({ text }) => text !== agreed).map(({ position }) => position)
}

function minorityOn(voters: readonly Voter[], log: Transfer, endpoints: number): number[] {
  const standing = standingOf(voters, log, endpoints)
  const differing =
    standing === "agreed"
      ? voters.filter(voter => contradicts(voter, log) || omits(voter, log))
      : standing === "denied"
        ? voters.filter(voter => saidOf(voter, log).length > 0)
        : voters.some(voter => contradicts(voter, log))
          ? voters
          : []
  return differing.map(({ position }) => position)
}
