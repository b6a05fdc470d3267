/**
 * A key in Google Cloud KMS, used through its REST API, because Google's client needs gRPC and 60 packages. Credentials
 * come from the places where Google's own libraries look (Application Default Credentials): a workload's identity, or a
 * file.
 */
// I/O: sends requests to the KMS.
import { hexToBytes, keccak256 } from "viem"
import { SignerError } from "../signer.ts"
import { numbersOfDer } from "./der.ts"
import { exchange } from "./exchange.ts"
import type { Sign } from "./sign.ts"

const API = "https://cloudkms.googleapis.com"
const SCOPE = "https://www.googleapis.com/auth/cloudkms"

/** Signs with the key version of this name; `endpoint` replaces the public one. */
export function gcpKms(name: string, endpoint = API): Sign {
  const url = `${endpoint}/v1/${name}:asymmetricSign`
  const open = async () => {
    const { GoogleAuth } = await import("google-auth-library")
    // The key's own project, so that the library does not have to look up the project of the credentials.
    return new GoogleAuth({ scopes: [SCOPE], projectId: name.split("/")[1] ?? "" })
  }
  let opened: ReturnType<typeof open> | undefined
  return async (bytes, signal) => {
    opened ??= open()
    const auth = await opened
    const token = await auth.getAccessToken()
    // The algorithm is called EC_SIGN_SECP256K1_SHA256, and takes any digest: ECDSA signs any 32 bytes.
    const body = { digest: { sha256: Buffer.from(hexToBytes(keccak256(bytes))).toString("base64") } }
    const text = await exchange(url, { body, headers: { authorization: `Bearer ${token}` } }, signal)
    // Checksums of digest and signature are not used, because the signature itself is checked.
    return numbersOfDer(Buffer.from(signatureIn(text), "base64"))
  }
}

function signatureIn(text: string): string {
  try {
    const { signature } = JSON.parse(text) as { signature?: unknown }
    if (typeof signature === "string") return signature
  } catch {
    // The error below says what is wrong.
  }
  throw new SignerError("answered without a signature", { isWrong: true })
}
