/**
 * Compares receipts with the stock software that others would read them with: 0G's SDK, jose and canonicalize. `npm run
 * receipts:oracle`, which installs them into this folder alone. Throws at the first difference.
 */
import { generateKeyPairSync, hash, randomBytes, randomInt } from "node:crypto"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { calculatePrice, factories, Indexer, MemData, type MerkleTree, Uploader } from "@0gfoundation/0g-ts-sdk"
import canonicalize from "canonicalize"
import { JsonRpcProvider, Wallet } from "ethers"
import { compactDecrypt, compactVerify, importJWK } from "jose"
import { factHash, makeSealed, saltedFacts } from "../../server/src/ledger/receipts/receipt.ts"
import { segmentOf } from "../../server/src/ledger/receipts/zerog/segments.ts"
import { uploadFile } from "../../server/src/ledger/receipts/zerog/send-file.ts"
import { storeFee } from "../../server/src/ledger/receipts/zerog/store-call.ts"
import { flowAbi, submissionOf } from "../../server/src/ledger/receipts/zerog/submission.ts"
import { startAnvil } from "../../server/test/anvil.ts"
import { PRICE, startZerog, zerogContracts } from "../../server/test/zerog.ts"
import { canonical, open, type PublicKey, type ReceiptBody, readReceipt, thumbprint } from "../../verify/src/format.ts"
import { CHUNK, pathOf, rootOf, rootOfPart, treeOf } from "../../verify/src/merkle.ts"
import { provenBytes, segmentsOf } from "../../verify/src/segments.ts"
import { fetchStored } from "../../verify/src/storage.ts"

const SIZES = 500
const RECEIPTS = 50
const same = (what: string, ours: unknown, theirs: unknown): void => {
  if (ours !== theirs) throw new Error(`${what}: ours is ${ours}, theirs ${theirs}`)
}
const keccak = (bytes: Uint8Array): Uint8Array => hash("keccak-256", bytes, "buffer")

/** Mostly short, as their padding differs most, and some of several segments; each edge beside its neighbours. */
function sizeOf(i: number): number {
  const edges = [1, CHUNK, 16 * CHUNK, 1_024 * CHUNK, 2_048 * CHUNK]
  const edge = edges[Math.floor(i / 3)]
  if (edge !== undefined) return Math.max(1, edge + (i % 3) - 1)
  return i % 10 === 0 ? randomInt(1, 1_500_000) : randomInt(1, 40_000)
}

/** What is asked of the contract, field by field, and what is paid. */
async function compareSubmission(bytes: Uint8Array, tree: ReturnType<typeof treeOf>): Promise<void> {
  const submitter = `0x${"ab".repeat(20)}` as const
  const [theirs, fault] = await new MemData(bytes).createSubmission("0x", submitter)
  if (fault) throw fault
  const ours = submissionOf(tree, bytes.length, submitter)
  const text = (of: unknown) => JSON.stringify(of, (_, value) => (typeof value === "bigint" ? Number(value) : value))
  // Field by field: the SDK writes `height` first.
  const fieldsOf = ({ data, submitter }: typeof ours) =>
    text([data.length, data.tags, data.nodes.map(({ root, height }) => [root, height]), submitter])
  const what = `the submission of ${bytes.length} bytes`
  same(what, fieldsOf(ours), fieldsOf(theirs as unknown as typeof ours))
  same(`the fee of ${what}`, storeFee(bytes.length, 7n), calculatePrice(theirs as never, 7n))
}

/** Each segment as its uploader sends it. */
async function compareSegments(
  bytes: Uint8Array,
  tree: ReturnType<typeof treeOf>,
  theirTree: MerkleTree,
): Promise<void> {
  const { getSegment } = Uploader.prototype
  const root = rootOf(tree) as `0x${string}`
  for (let index = 0; index < segmentsOf(bytes.length); index++) {
    const [, theirs, fault] = await getSegment(new MemData(bytes), theirTree, index)
    if (fault) throw fault
    const ours = segmentOf(bytes, tree, index)
    const what = `segment ${index} of ${bytes.length} bytes`
    same(what, JSON.stringify(ours), JSON.stringify(theirs))
    const proven = provenBytes(theirs, { root, size: bytes.length, index }, keccak)
    same(`the proven bytes of ${what}`, proven && Buffer.from(proven).toString("base64"), ours.data)
  }
}

for (let i = 0; i < SIZES; i++) {
  const size = sizeOf(i)
  const bytes = randomBytes(size)
  const [theirs, fault] = await new MemData(bytes).merkleTree()
  if (fault) throw fault
  if (!theirs) throw new Error("the SDK makes no tree")
  const tree = treeOf(bytes, keccak)
  await compareSubmission(bytes, tree)
  await compareSegments(bytes, tree, theirs)
  same(`the root of ${size} bytes`, rootOf(tree), theirs.rootHash())
  const whole = Math.floor(size / CHUNK)
  if (whole === 0) continue
  const from = randomInt(whole)
  const chunks = randomInt(1, Math.min(20, whole - from) + 1)
  const part = bytes.subarray(from * CHUNK, (from + chunks) * CHUNK)
  const path = pathOf(tree, from * CHUNK, part.length)
  same(`the root by the path of ${chunks} chunks`, rootOfPart(part, from * CHUNK, size, path), rootOf(tree))
}

const pair = generateKeyPairSync("ed25519")
const { crv, kty, x } = pair.publicKey.export({ format: "jwk" }) as PublicKey
const publicKey = { crv, kty, x } as const
const id = await thumbprint(publicKey)
for (let i = 0; i < RECEIPTS; i++) {
  const facts = saltedFacts({ facts: [["description", `Bücher ${i} "\\ \u2028 €`]] })
  const body = {
    v: 1,
    type: "payment",
    seq: i + 1,
    prev: null,
    facts: facts.map(factHash),
    z: "é\u0007",
  } as unknown as ReceiptBody
  const { jwe, kept } = makeSealed(body, facts, { id, publicKey, key: pair.privateKey })
  const { plaintext } = await compactDecrypt(jwe, Buffer.from(kept.key, "base64url"))
  const jws = new TextDecoder().decode(plaintext)
  same("the opened receipt", await open(jwe, kept.key), jws)
  const { payload } = await compactVerify(jws, await importJWK(publicKey, "EdDSA"))
  same("the canonical JSON", new TextDecoder().decode(payload), canonicalize(body))
  same("the canonical JSON of what was read", canonical((await readReceipt(jws)).body), canonicalize(body))
}
/** 0G's own software against the local 0G of the tests: what it uploads we prove, and what we upload it downloads. */
async function compareWithLocal(): Promise<void> {
  same("the bytecode of Flow", zerogContracts.flow, factories.FixedPriceFlow__factory.bytecode)
  const anvil = await startAnvil()
  const zerog = await startZerog(anvil)
  const folder = mkdtempSync(join(tmpdir(), "receipts-oracle-"))
  // The SDK writes dozens of lines, with nothing to switch them off.
  // biome-ignore lint/suspicious/noConsole: it is what is silenced.
  const told = console.log
  console.log = () => {}
  try {
    const { rpcUrl, client, accounts } = anvil
    const key = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
    const signer = new Wallet(key, new JsonRpcProvider(rpcUrl))
    const indexer = new Indexer(zerog.indexer)
    const settings = { webhooks: { allowCidrs: ["127.0.0.0/8"] } }
    const ctx = { settings, signal: new AbortController().signal } as never
    for (const [i, chunks] of [3, 1_500, 2_100].entries()) {
      const bytes = randomBytes(chunks * CHUNK)
      const tree = treeOf(bytes, keccak)
      const root = rootOf(tree) as `0x${string}`
      /** With the place that its newest event gives it. */
      const sent = async () => {
        const { seq = -1, start = -1 } = (await zerog.files()).findLast(each => each.root === root) ?? {}
        return { bytes, tree, seq, start }
      }
      if (i === 1) {
        const [, fault] = await indexer.upload(new MemData(bytes), rpcUrl, signer as never)
        if (fault) throw fault
        const uploads = zerog.nodes.map(node => node.uploads).join()
        same("what 0G uploaded is proven", (await uploadFile(ctx, zerog.indexer, await sent())).state, "stored")
        same("and nothing is sent again", zerog.nodes.map(node => node.uploads).join(), uploads)
      } else {
        const submission = submissionOf(tree, bytes.length, accounts[0].address)
        const value = storeFee(bytes.length, PRICE)
        await client.writeContractSync({
          address: zerog.flow,
          abi: flowAbi,
          functionName: "submit",
          args: [submission],
          value,
        })
        same("our upload", (await uploadFile(ctx, zerog.indexer, await sent())).state, "stored")
      }
      const path = join(folder, `${i}`)
      const fault = await indexer.download(root, path, true)
      if (fault) throw fault
      same(`the download of ${bytes.length} bytes`, readFileSync(path).toString("base64"), bytes.toString("base64"))
      const verifiers = Buffer.from(await fetchStored(zerog.indexer, root))
      same(`the verifier's of ${bytes.length} bytes`, verifiers.toString("base64"), bytes.toString("base64"))
    }
  } finally {
    console.log = told
    zerog.stop()
    await anvil.stop()
    rmSync(folder, { recursive: true })
  }
}

await compareWithLocal()
process.stdout.write(
  `${SIZES} files have the root, the submission, the fee and the segments of 0G's SDK, and ${RECEIPTS} receipts are read by jose and canonicalize.\n`,
)
