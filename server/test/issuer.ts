/**
 * An identity provider of the tests: real discovery and keys over HTTP, tokens with whatever a test wants in them, and the
 * code flow for a browser, whose person is signed in already.
 */
import { createHash, randomUUID } from "node:crypto"
import { createServer, type IncomingMessage } from "node:http"
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
  /** Who is signed in at the provider, and what the next ID token says differently. */
  person: { sub: string; claims: Record<string, unknown>; header: Record<string, string> }
  /** What the next answer to a browser has in place of a code, such as `error: "access_denied"`. */
  refusal: Record<string, string> | undefined
  /** Whether it shows a page with a link back, in place of sending the browser back at once. */
  isAsking: boolean
  stop(): Promise<void>
}

/** The console's client at the provider. */
export const CLIENT = { id: "console", secret: "a client's secret: 100%" }

export const AUDIENCE = "sluice"

/** `ending` is the end of its name after the port: some issuers have a slash there. */
export async function startIssuer(ending = ""): Promise<TestIssuer> {
  const { privateKey, publicKey } = await generateKeyPair("ES256")
  const publicJwk = { ...(await exportJWK(publicKey)), kid: "test", alg: "ES256", use: "sig" }
  let issuer = ""
  const answers: Pick<TestIssuer, "person" | "refusal" | "isAsking"> = {
    person: { sub: "ada", claims: {}, header: {} },
    refusal: undefined,
    isAsking: false,
  }
  /** The requests of browsers, by the code that each was answered with. */
  const asked = new Map<string, URLSearchParams>()
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://issuer")
    const at = (path: string) => new URL(path, issuer).href
    const documents: Record<string, unknown> = {
      "/.well-known/openid-configuration": {
        issuer,
        jwks_uri: at("/jwks"),
        authorization_endpoint: at("/authorize"),
        token_endpoint: at("/token"),
        response_types_supported: ["code"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: ["ES256"],
      },
      "/jwks": { keys: [publicJwk] },
    }
    if (pathname === "/authorize") {
      const back = new URL(searchParams.get("redirect_uri") ?? "")
      const code = randomUUID()
      asked.set(code, searchParams)
      const answer = { state: searchParams.get("state") ?? "", ...(answers.refusal ?? { code }) }
      for (const [name, value] of Object.entries(answer)) back.searchParams.set(name, value)
      if (!answers.isAsking) return void response.writeHead(302, { location: back.href }).end()
      const page = `<!doctype html><a href="${back.href.replaceAll("&", "&amp;")}">Continue</a>`
      return void response.writeHead(200, { "content-type": "text/html" }).end(page)
    }
    const document = pathname === "/token" ? await tokenFor(request) : documents[request.url ?? ""]
    const status = document === "refused" ? 400 : document ? 200 : 404
    const body = document === "refused" ? { error: "invalid_grant" } : (document ?? {})
    return void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
  })
  /** Exchanges a code once, for whoever knows the client's secret and the verifier. */
  const tokenFor = async (request: IncomingMessage): Promise<unknown> => {
    let text = ""
    for await (const chunk of request) text += chunk
    const form = new URLSearchParams(text)
    const code = form.get("code") ?? ""
    const of = asked.get(code)
    asked.delete(code)
    const basic = Buffer.from(request.headers.authorization?.replace(/^Basic /, "") ?? "", "base64").toString()
    const [id, secret] = basic.split(":").map(part => decodeURIComponent(part.replaceAll("+", " ")))
    const challenge = createHash("sha256")
      .update(form.get("code_verifier") ?? "")
      .digest("base64url")
    const isRight =
      of?.get("code_challenge") === challenge &&
      of.get("redirect_uri") === form.get("redirect_uri") &&
      id === CLIENT.id &&
      secret === CLIENT.secret
    if (!isRight) return "refused"
    const { sub, claims, header } = answers.person
    const now = Math.floor(Date.now() / 1_000)
    // The address is given for its scope alone (OpenID Connect Core 1.0, 5.4).
    const { email, email_verified: isVerified, ...others } = claims
    const address = of.get("scope")?.split(" ").includes("email") ? { email, email_verified: isVerified } : {}
    const more = { aud: CLIENT.id, nonce: of.get("nonce"), iat: now, ...address, ...others }
    return { access_token: "unused", token_type: "Bearer", id_token: await sign(sub, more, header) }
  }
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  issuer = `http://127.0.0.1:${(server.address() as { port: number }).port}${ending}`
  const sign = (sub: string, claims: object, header: object): Promise<string> =>
    new SignJWT({ iss: issuer, aud: AUDIENCE, sub, exp: Math.floor(Date.now() / 1_000) + 3_600, ...claims })
      .setProtectedHeader({ alg: "ES256", kid: "test", ...header })
      .sign(privateKey)
  // A subject's plain token is the same for half an hour: a signature takes 0.15 ms of CPU, and each request carries one.
  const plain = new Map<string, { token: Promise<string>; until: number }>()
  const own: Omit<TestIssuer, keyof typeof answers> = {
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
  return Object.assign(answers, own)
}
