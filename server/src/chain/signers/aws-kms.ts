/** A key in AWS KMS. Credentials come from where AWS's own client looks for them: a role, a file, the environment. */
// I/O: asks the KMS.
import { hexToBytes, keccak256 } from "viem"
import { SignerError } from "../signer.ts"
import { numbersOfDer } from "./der.ts"
import type { Sign } from "./remote-signer.ts"

const CONNECT_MS = 3_000

/** Signs with the key of an ARN; `endpoint` in place of its region's. */
export function awsKms(arn: string, endpoint?: string): Sign {
  const region = arn.split(":")[3] ?? ""
  const open = async () => {
    const { KMSClient, SignCommand } = await import("@aws-sdk/client-kms")
    const client = new KMSClient({
      region,
      ...(endpoint ? { endpoint } : {}),
      requestHandler: { connectionTimeout: CONNECT_MS },
    })
    return { client, SignCommand }
  }
  let opened: ReturnType<typeof open> | undefined
  return async (bytes, signal) => {
    opened ??= open()
    const { client, SignCommand } = await opened
    const command = new SignCommand({
      KeyId: arn,
      // The hash as it is, whose kind a digest does not show: ECDSA signs any 32 bytes.
      Message: hexToBytes(keccak256(bytes)),
      MessageType: "DIGEST",
      SigningAlgorithm: "ECDSA_SHA_256",
    })
    const { Signature } = await client.send(command, { abortSignal: signal })
    if (!Signature) throw new SignerError("answered without a signature", { isWrong: true })
    return numbersOfDer(Signature)
  }
}
