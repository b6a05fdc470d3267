/** An identity provider of the tests: real discovery and keys over HTTP, and tokens with whatever a test wants in them. */
import { createServer } from "node:http"
import { type CryptoKey, exportJWK, generateKeyPair, SignJWT } from "jose"

export interface TestIssuer {
  issuer: string
  privateKey: CryptoKey
  publicJwk: Record<string, unknown>
  /** A valid token, except for what `claims` and `header` change. */
  token(
    sub: string,
    claims?: Record<string, unknown>,
    header?: { alg?: string; kid?: string; typ?: string },
  ): Promise<string>
  stop(): Promise<void>
}

export const AUDIENCE = "sluice"

/** `ending` is the end of its name after the port: some issuers have a slash there. */
export async function startIssuer(ending = ""): Promise<TestIssuer> {
  const { privateKey, publicKey } = await generateKeyPair("ES256")
  const publicJwk = { ...(await exportJWK(publicKey)), kid: "test", alg: "ES256", use: "sig" }
  let issuer = ""
  const server = createServer((request, response) => {
    const documents: Record<string, unknown> = {
      "/.well-known/openid-configuration": { issuer, jwks_uri: new URL("/jwks", issuer).href },
      "/jwks": { keys: [publicJwk] },
    }
    const document = documents[request.url ?? ""]
    response.writeHead(document ? 200 : 404, { "content-type": "application/json" }).end(JSON.stringify(document ?? {}))
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  issuer = `http://127.0.0.1:${(server.address() as { port: number }).port}${ending}`
  const sign = (sub: string, claims: object, header: object): Promise<string> =>
    new SignJWT({ iss: issuer, aud: AUDIENCE, sub, exp: Math.floor(Date.now() / 1_000) + 3_600, ...claims })
      .setProtectedHeader({ alg: "ES256", kid: "test", ...header })
      .sign(privateKey)
  // A subject's plain token is the same for half an hour: a signature takes 0.15 ms of CPU, and each request carries one.
  const plain = new Map<string, { token: Promise<string>; until: number }>()
  return {
    issuer,
    privateKey,
    publicJwk,
    token: async (sub, claims, header) => {
      if (claims || header) return await sign(sub, claims ?? {}, header ?? {})
      const known = plain.get(sub)
      if (known && known.until > Date.now()) return await known.token
      const token = sign(sub, {}, {})
      plain.set(sub, { token, until: Date.now() + 1_800_000 })
      return await token
    },
    stop: () =>
      new Promise(resolve => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
}
