// Keys from encrypted files: the standard's own vectors, what geth and foundry write, and everything that is refused.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inspect } from "node:util"
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { foundry, keystoreOf } from "../../../test/keystore.ts"
import { liveEnv } from "../../../test/live.ts"
import { openKeystore } from "../chain/keystore.ts"
import { readSettings } from "./read-settings.ts"
import { SettingsError } from "./settings.ts"

type Env = Record<string, string | undefined>

/** From the definition of Web3 Secret Storage; both hold one key. */
const standard = {
  password: "testpassword",
  key: "0x7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d",
  pbkdf2: {
    crypto: {
      cipher: "aes-128-ctr",
      cipherparams: { iv: "6087dab2f9fdbbfaddc31a909735c1e6" },
      ciphertext: "5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46",
      kdf: "pbkdf2",
      kdfparams: {
        c: 262144,
        dklen: 32,
        prf: "hmac-sha256",
        salt: "ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd",
      },
      mac: "517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2",
    },
    id: "3198bc9c-6672-5ab3-d995-4942343ae5b6",
    version: 3,
  },
  scrypt: {
    crypto: {
      cipher: "aes-128-ctr",
      cipherparams: { iv: "83dbcc02d8ccb40e466191a123791e0e" },
      ciphertext: "d172bf743a674da9cdad04534d56926ef8358534d458fffccd4e6ad2fbde479c",
      kdf: "scrypt",
      kdfparams: {
        dklen: 32,
        n: 262144,
        p: 8,
        r: 1,
        salt: "ab0c7876052600dd703518d6fc3fe8984592145b591fc8fb5c6d43190334ba19",
      },
      mac: "2103ac29920d71da29f15d75b4a16dbe95cfd7ff8faea1056c33131d846e3097",
    },
    id: "3198bc9c-6672-5ab3-d995-4942343ae5b6",
    version: 3,
  },
} as const

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "sluice-keys-"))
})
afterAll(() => rmSync(dir, { recursive: true }))

let files = 0
function file(text: string, mode = 0o600): string {
  const path = join(dir, `${files++}`)
  writeFileSync(path, text)
  chmodSync(path, mode)
  return path
}

const faultsOf = (env: Env): string[] => {
  try {
    readSettings(env)
    return []
  } catch (error) {
    if (error instanceof SettingsError) return error.faults
    throw error
  }
}

describe("openKeystore", () => {
  it.each(["pbkdf2", "scrypt"] as const)("reads the standard's own vector for %s", kdf => {
    expect(openKeystore(JSON.stringify(standard[kdf]), standard.password)).toBe(standard.key)
  })

  it("reads what geth writes, and what foundry does", () => {
    const key = generatePrivateKey()
    const address = privateKeyToAddress(key)
    const geth = keystoreOf(key, "pass wörd", { n: 262144, r: 8, p: 1 }, { address: address.slice(2).toLowerCase() })
    expect(openKeystore(geth, "pass wörd")).toBe(key)
    expect(openKeystore(keystoreOf(key, "x", foundry), "x")).toBe(key)
    expect(openKeystore(keystoreOf(key, "x", { c: 1_000 }, { address }), "x")).toBe(key)
  })

  it("refuses another password, and a file that was changed", () => {
    const key = generatePrivateKey()
    const json = keystoreOf(key, "right", foundry)
    const damaged = JSON.parse(json)
    const { ciphertext } = damaged.crypto
    damaged.crypto.ciphertext = `${ciphertext.startsWith("00") ? "01" : "00"}${ciphertext.slice(2)}`
    for (const attempt of [() => openKeystore(json, "wrong"), () => openKeystore(JSON.stringify(damaged), "right")])
      expect(attempt).toThrow("can't be decrypted with the password")
  })

  it("refuses a key of an address other than the file names", () => {
    const json = keystoreOf(generatePrivateKey(), "x", foundry, { address: "11".repeat(20) })
    expect(() => openKeystore(json, "x")).toThrow("of another address than")
  })

  it.each([
    ["not JSON", "{"],
    ["null", "null"],
    ["a key", JSON.stringify(`0x${"7f3a".repeat(16)}`)],
    ["version 1", JSON.stringify({ ...standard.scrypt, version: 1 })],
    ["without crypto", JSON.stringify({ version: 3 })],
    ...(
      [
        ["another cipher", { cipher: "aes-128-cbc" }],
        ["another kdf", { kdf: "argon2" }],
        ["a short key", { ciphertext: "d172" }],
        ["no mac", { mac: undefined }],
        ["no iv", { cipherparams: {} }],
        ["scrypt without its numbers", { kdfparams: { dklen: 32, salt: "ab" } }],
        ["scrypt of a terabyte", { kdfparams: { ...standard.scrypt.crypto.kdfparams, n: 2 ** 40 } }],
        ["scrypt for days", { kdfparams: { ...standard.scrypt.crypto.kdfparams, n: 2, p: 2 ** 40 } }],
        ["PBKDF2 for days", { kdf: "pbkdf2", kdfparams: { c: 2 ** 40, prf: "hmac-sha256", dklen: 32, salt: "ab" } }],
        ["scrypt for no power of two", { kdfparams: { ...standard.scrypt.crypto.kdfparams, n: 1000 } }],
        ["a short derived key", { kdfparams: { ...standard.scrypt.crypto.kdfparams, dklen: 16 } }],
      ] as const
    ).map(([what, change]) => [
      what,
      JSON.stringify({ ...standard.scrypt, crypto: { ...standard.scrypt.crypto, ...change } }),
    ]),
  ] as [string, string][])("refuses what is not a keystore: %s", (_what, json) => {
    expect(() => openKeystore(json, standard.password)).toThrow(/is not a keystore|can.t be decrypted/)
  })
})

/** Few rounds: settings are read a hundred times, and each time the key is derived. */
const quick = { c: 1_000 }

describe.each(["PAYOUT", "RELAY"] as const)("%s_KEYSTORE", wallet => {
  const KEYSTORE = `${wallet}_KEYSTORE`
  const PASSWORD = `${wallet}_KEYSTORE_PASSWORD_FILE`
  const KEY = `${wallet}_PRIVATE_KEY`
  const key = generatePrivateKey()
  const address = privateKeyToAddress(key).toLowerCase()
  const given = (change: Env = {}): Env => ({
    [KEYSTORE]: file(keystoreOf(key, "hunter2", quick)),
    [PASSWORD]: file("hunter2\n"),
    ...change,
  })
  const live = (change: Env = {}): Env => ({ ...liveEnv, [KEY]: "", ...given(change) })

  it("signs as its key would, and nothing prints it", async () => {
    for (const password of ["hunter2", "hunter2\n", "hunter2\r\n"]) {
      const settings = readSettings(given({ [PASSWORD]: file(password) }))
      const signer = wallet === "PAYOUT" ? settings.payoutSigner : settings.relaySigner
      expect(signer?.address).toBe(address)
      expect(wallet === "PAYOUT" ? settings.payoutWallet : settings.relayWallet).toBe(address)
      expect(settings.serviceWallets).toEqual([address])
      expect(inspect(settings, { depth: 9, showHidden: true })).not.toMatch(new RegExp(`${key.slice(2)}|hunter2`))
    }
  })

  it("is enough in live mode", () => {
    expect(faultsOf(live())).toEqual([])
  })

  it("must not be combined with a key, and needs a password", () => {
    const both = new RegExp(`^${KEYSTORE} can't be set together with ${KEY}`)
    expect(faultsOf(given({ [KEY]: key }))).toEqual([expect.stringMatching(both)])
    expect(faultsOf({ [KEY]: key, [PASSWORD]: file("x") })).toEqual([expect.stringMatching(both)])
    expect(faultsOf(given({ [PASSWORD]: "" }))).toEqual([expect.stringMatching(`^${PASSWORD} must be set`)])
    expect(faultsOf(given({ [KEYSTORE]: "" }))).toEqual([expect.stringMatching(`^${KEYSTORE} must be set`)])
  })

  it("names the file that is wrong, once, and repeats none of its content", () => {
    const wrong: [Env, RegExp][] = [
      [{ [KEYSTORE]: join(dir, "none") }, /KEYSTORE can't be read: ENOENT$/],
      [{ [KEYSTORE]: dir }, /KEYSTORE can't be read: EISDIR$/],
      [{ [KEYSTORE]: file("x".repeat(70_000)) }, /KEYSTORE is too large/],
      [{ [KEYSTORE]: file(key) }, /KEYSTORE is not a keystore/],
      [{ [PASSWORD]: file("hunter3") }, /KEYSTORE can't be decrypted/],
      [{ [PASSWORD]: file("hunter2\n\n") }, /KEYSTORE can't be decrypted/],
      [{ [PASSWORD]: file("\n") }, /PASSWORD_FILE is empty$/],
      [{ [PASSWORD]: join(dir, "none") }, /PASSWORD_FILE can't be read: ENOENT$/],
    ]
    for (const [change, words] of wrong)
      for (const env of [given(change), live(change)]) {
        const faults = faultsOf(env)
        expect(faults).toEqual([expect.stringMatching(words)])
        expect(faults[0]).toMatch(new RegExp(`^${wallet}_`))
        expect(faults.join()).not.toMatch(new RegExp(`hunter|${key.slice(2)}`))
      }
  })

  it("has a password that others can't read, in live mode", () => {
    for (const mode of [0o640, 0o604, 0o660, 0o610]) {
      const change = { [PASSWORD]: file("hunter2", mode) }
      expect(faultsOf(live(change))).toEqual([
        expect.stringMatching(/PASSWORD_FILE is readable by users other than its owner/),
      ])
      expect(faultsOf(given(change))).toEqual([])
    }
    expect(faultsOf(live({ [PASSWORD]: file("hunter2", 0o400) }))).toEqual([])
  })

  it("must satisfy the rules of live mode like a key", () => {
    const anvil = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
    const known = live({ [KEYSTORE]: file(keystoreOf(anvil, "hunter2", quick)) })
    expect(faultsOf(known)).toEqual([expect.stringMatching(`^${KEYSTORE} is a well-known development key`)])
    const other = wallet === "PAYOUT" ? "RELAY_PRIVATE_KEY" : "PAYOUT_PRIVATE_KEY"
    expect(faultsOf({ ...live(), [other]: key })).toEqual([expect.stringMatching(/^RELAY_.* must differ from/)])
    expect(faultsOf({ ...live(), SECRET_KEY: key })).toEqual([
      expect.stringMatching(/^SECRET_KEY must not be a wallet's key/),
    ])
    expect(faultsOf({ ...liveEnv, [KEY]: "" })).toEqual([expect.stringMatching(`^${KEY} must be set, or ${KEYSTORE}`)])
  })
})

describe.each(["PAYOUT", "RELAY"] as const)("%s_SIGNER", wallet => {
  const SIGNER = `${wallet}_SIGNER`
  const KEY = `${wallet}_PRIVATE_KEY`
  const address = `0x${"a7".repeat(20)}`
  const arn = "aws-kms:arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
  const live = (value: string, change: Env = {}): Env => ({ ...liveEnv, [KEY]: "", [SIGNER]: value, ...change })

  it("names the wallet, and nobody is asked for it at the start", () => {
    for (const key of [arn, "web3signer:http://127.0.0.1:1"]) {
      const settings = readSettings({ [SIGNER]: `${key}/${address}` })
      const signer = wallet === "PAYOUT" ? settings.payoutSigner : settings.relaySigner
      expect(signer).toMatchObject({ address, remote: key.split(":")[0] })
      expect(wallet === "PAYOUT" ? settings.payoutWallet : settings.relayWallet).toBe(address)
      expect(settings.serviceWallets).toEqual([address])
    }
  })

  it("is enough in live mode, and has its rules", () => {
    expect(faultsOf(live(`${arn}/${address}`))).toEqual([])
    expect(faultsOf(live("x"))).toEqual([expect.stringMatching(`^${SIGNER} must start with aws-kms:`)])
    expect(faultsOf(live(arn))).toEqual([expect.stringMatching(`^${SIGNER} must end with .*sluice signer ${arn}`)])
    const known = live(`${arn}/0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266`)
    expect(faultsOf(known)).toEqual([expect.stringMatching(`^${SIGNER} is a well-known development key`)])
    const other = { PAYOUT_PRIVATE_KEY: "", RELAY_PRIVATE_KEY: "", PAYOUT_SIGNER: `${arn}/${address}` }
    expect(faultsOf({ ...liveEnv, ...other, RELAY_SIGNER: `${arn}/${address}` })).toEqual([
      expect.stringMatching(/^RELAY_SIGNER must differ from PAYOUT_SIGNER/),
    ])
  })

  it("must not be combined with a key", () => {
    const both = /_SIGNER can't be set together with .*: set only one of them/
    expect(faultsOf({ [SIGNER]: `${arn}/${address}`, [KEY]: generatePrivateKey() })).toEqual([
      expect.stringMatching(both),
    ])
    for (const name of ["KEYSTORE", "KEYSTORE_PASSWORD_FILE"])
      expect(faultsOf({ [SIGNER]: `${arn}/${address}`, [`${wallet}_${name}`]: file("x") })).toEqual([
        expect.stringMatching(both),
      ])
  })

  it("is reached by https in live mode, or at a private address", () => {
    const plain = (host: string) => live(`web3signer:http://${host}:9000/${address}`)
    expect(faultsOf(plain("signer.example.com"))).toEqual([expect.stringMatching(`^${SIGNER} must use https`)])
    for (const host of ["10.0.0.7", "signer.internal", "signer"]) expect(faultsOf(plain(host))).toEqual([])
    expect(faultsOf(live(`web3signer:https://signer.example.com/${address}`))).toEqual([])
    const kms = (endpoint: string) => live(`${arn}/${address}`, { KMS_ENDPOINT: endpoint })
    expect(faultsOf(kms("http://kms.example.com"))).toEqual([expect.stringMatching(/^KMS_ENDPOINT must use https/)])
    expect(faultsOf(kms("https://kms.example.com"))).toEqual([])
    for (const sly of ["HTTP://kms.example.com", " http://kms.example.com", "ht\ttp://kms.example.com"])
      expect(faultsOf(kms(sly)), sly).toEqual([expect.stringMatching(/^KMS_ENDPOINT must (use https|be an http)/)])
    for (const secret of ["https://user:hunter2@kms.example.com", "https://kms.example.com/?key=hunter2"]) {
      const faults = faultsOf(kms(secret))
      expect(faults).toEqual([expect.stringMatching(/^KMS_ENDPOINT must have no user, password, query or fragment/)])
      expect(faults.join()).not.toContain("hunter2")
    }
  })
})

it("two keys in a KMS are two, and one endpoint is one provider's", () => {
  const arn = "aws-kms:arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
  const version = "gcp-kms:projects/p/locations/global/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"
  const one = `0x${"a7".repeat(20)}`
  const other = `0x${"b8".repeat(20)}`
  expect(faultsOf({ PAYOUT_SIGNER: `${arn}/${one}`, RELAY_SIGNER: `${arn}/${other}` })).toEqual([
    expect.stringMatching(/^RELAY_SIGNER must differ from PAYOUT_SIGNER/),
  ])
  const both = { PAYOUT_SIGNER: `${arn}/${one}`, RELAY_SIGNER: `${version}/${other}` }
  expect(faultsOf(both)).toEqual([])
  expect(faultsOf({ ...both, KMS_ENDPOINT: "https://kms.example.com" })).toEqual([
    expect.stringMatching(/^KMS_ENDPOINT can't be set with keys of two providers/),
  ])
})
