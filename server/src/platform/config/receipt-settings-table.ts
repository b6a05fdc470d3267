/** Declares the settings of receipts, and of 0G's storage. */
import { parseRemoteWallet } from "../chain/signers/remote-key.ts"
import type { Setting } from "./setting.ts"
import {
  address,
  durationWithin,
  ether,
  httpUrl,
  listOf,
  offOrDuration,
  oneOf,
  privateKey,
  text,
  whole,
} from "./setting-values.ts"

/** A part of the table of settings. */
export const receiptSettings = {
  RECEIPT_BATCH: {
    meaning: "how long receipts are collected before they are signed together and stored as one file",
    fallback: "5s",
    parse: durationWithin(1, 3_600),
  },
  RECEIPT_ANCHOR: {
    meaning:
      "how often the roots of receipt files are written to the chain of their payments, such as 1h. The payout wallet writes the roots to the contract that `sluice deploy --contract receipt-anchor` deploys. off: never, so receipts can't be verified without asking this service",
    fallback: "off",
    parse: offOrDuration(1, 30 * 86_400),
  },
  RECEIPT_STORE: {
    meaning:
      "where receipt files are kept. file: in DATA_DIR. 0g: in DATA_DIR and in 0G's storage, where they remain even if this service is gone. 0g needs ZEROG_RPC, ZEROG_INDEXER, ZEROG_FLOW and a key. The service then also uploads older files",
    fallback: "file",
    parse: oneOf("file", "0g"),
  },
  RECEIPT_WAIT: {
    meaning:
      "with RECEIPT_STORE=0g: how long checkout.session.completed waits for the transaction that stores its receipt. After that, the event is sent without the field zeroG",
    fallback: "10s",
    parse: durationWithin(0, 300),
  },
  ZEROG_RPC: {
    meaning: "the addresses of nodes on 0G's chain, comma-separated",
    parse: listOf(httpUrl),
  },
  ZEROG_CHAIN_ID: {
    meaning: "the chain id of 0G's chain: 16661, or 16602 for its test network Galileo",
    fallback: "16661",
    parse: whole(1, 2 ** 31 - 1),
  },
  ZEROG_FLOW: { meaning: "the address of the Flow contract on 0G's chain", parse: address },
  ZEROG_INDEXER: { meaning: "the address of 0G's indexer, which names its storage nodes", parse: httpUrl },
  ZEROG_MAX_FEE: {
    meaning:
      "the highest fee that is paid for one file, in 0G's native token, not counting gas. A file with a higher fee waits",
    fallback: "0.01",
    parse: ether,
  },
  ZEROG_PRIVATE_KEY: {
    meaning:
      "the key of the wallet that pays for storage on 0G's chain. If the key is lost, only that wallet's money is lost",
    parse: privateKey,
  },
  ZEROG_KEYSTORE: { meaning: "an encrypted file with that key, instead of the key itself", parse: text },
  ZEROG_KEYSTORE_PASSWORD_FILE: {
    meaning: "a file with the keystore's password",
    live: "readable only by its owner",
    parse: text,
  },
  ZEROG_SIGNER: {
    meaning: "the remote signer that holds that key instead, in the same form as PAYOUT_SIGNER",
    live: "https, or a private address",
    parse: parseRemoteWallet,
  },
} as const satisfies Record<string, Setting<unknown>>
