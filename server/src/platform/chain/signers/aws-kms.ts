/** A key in AWS KMS. Credentials come from the places where AWS's own client looks: a role, a file, the environment. */
// I/O: sends requests to the KMS.
import { pipeline, Readable, Transform } from "node:stream"
import { hexToBytes, keccak256 } from "viem"
import { AnswerTooLarge } from "../../net/bounded-body.ts"
import { SignerError } from "../signer.ts"
import { numbersOfDer } from "./der.ts"
import { MAX_BYTES, oneLine, withoutSecrets } from "./exchange.ts"
import type { Sign } from "./sign.ts"

const CONNECT_MS = 3_000

interface Keys {
  sessionToken?: string | undefined
  secretAccessKey?: string | undefined
}

/** Returns the same bytes as a stream that fails beyond the maximum size of an answer. */
function limited(body: Readable): Readable {
  let bytes = 0
  const limit = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length
      done(bytes > MAX_BYTES ? new AnswerTooLarge(MAX_BYTES) : null, chunk)
    },
  })
  // Also ends the connection if the limit is exceeded.
  return pipeline(body, limit, () => {})
}

/** Signs with the key of an ARN; `endpoint` replaces the endpoint of the key's region. */
export function awsKms(arn: string, endpoint?: string): Sign {
  const region = arn.split(":")[3] ?? ""
  const open = async () => {
    const { KMSClient, SignCommand } = await import("@aws-sdk/client-kms")
    const client = new KMSClient({
      region,
      ...(endpoint ? { endpoint } : {}),
      requestHandler: { connectionTimeout: CONNECT_MS },
    })
    // Placed nearest to the connection, because the client itself would read an answer of any length.
    client.middlewareStack.add(
      next => async args => {
        const result = await next(args)
        const response = result.response as { body?: unknown } | undefined
        if (response?.body instanceof Readable) response.body = limited(response.body)
        return result
      },
      { step: "deserialize", priority: "low", name: "limitAnswer" },
    )
    return { client, SignCommand }
  }
  let opened: ReturnType<typeof open> | undefined
  return async (bytes, signal) => {
    opened ??= open()
    const { client, SignCommand } = await opened
    const command = new SignCommand({
      KeyId: arn,
      // The Keccak hash is passed unchanged: the API does not check which hash made a digest, and ECDSA signs any 32
      // bytes.
      Message: hexToBytes(keccak256(bytes)),
      MessageType: "DIGEST",
      SigningAlgorithm: "ECDSA_SHA_256",
    })
    const { Signature } = await client.send(command, { abortSignal: signal }).catch(async (error: Error) => {
      if (signal.aborted) throw error
      // Some proxies send back what they received.
      const { sessionToken = "", secretAccessKey = "" } = await client.config.credentials().catch((): Keys => ({}))
      const words = withoutSecrets(`${error.name}: ${error.message}`, [sessionToken, secretAccessKey])
      throw new SignerError(`failed: ${oneLine(words)}`)
    })
    if (!Signature) throw new SignerError("answered without a signature", { isWrong: true })
    return numbersOfDer(Signature)
  }
}
