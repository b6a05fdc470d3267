// One wrong process beside right ones: it refuses to start and says why, and the others go on. Then the key is changed, as the
// document says, under a service that answers all the time.
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../anvil.ts"
import { AUDIENCE, startIssuer, type TestIssuer } from "../issuer.ts"
import { liveEnv, livePayoutWallet } from "../live.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { freePort, plainEnv, root, until } from "./program.ts"

const [OLD, NEW, WRONG] = ["5f", "a7", "c3"].map(byte => byte.repeat(32)) as [string, string, string]

interface Program {
  child: ChildProcess
  url: string
  output: () => string
  ended: Promise<number | null>
}

describe.runIf(postgresBinaries())("an installation of several processes", () => {
  const programs: Program[] = []
  let postgres: TestPostgres
  let anvil: Anvil
  let issuer: TestIssuer
  let env: Record<string, string>
  let bearer: Record<string, string>
  /** The end of the account's webhook secret, as the console shows it. */
  let account: string | undefined
  let made = 0

  beforeAll(async () => {
    ;[postgres, anvil, issuer] = await Promise.all([startPostgres(), startAnvil(), startIssuer()])
    env = {
      ...plainEnv(),
      MODE: "test",
      DATABASE_URL: postgres.url,
      SECRET_KEY: OLD,
      OIDC_ISSUER: issuer.issuer,
      OIDC_AUDIENCE: AUDIENCE,
      NETWORKS: "base-sepolia",
      RPC_BASE_SEPOLIA: anvil.rpcUrl,
      TOKEN_BASE_SEPOLIA: await deployTestUsdc(anvil.client),
      ESCROW_BASE_SEPOLIA: "off",
      DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, livePayoutWallet()),
      PAYOUT_WALLET: livePayoutWallet(),
      LIMIT_CONSOLE: "0",
      LIMIT_PUBLIC: "0",
    }
    bearer = { authorization: `Bearer ${await issuer.token("shop")}`, "content-type": "application/json" }
  })
  afterAll(async () => {
    for (const { child } of programs) if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL")
    await Promise.all([postgres?.stop(), anvil?.stop(), issuer?.stop()])
  })

  async function start(role: "api" | "worker", more: Record<string, string> = {}): Promise<Program> {
    const port = `${await freePort()}`
    const keys = role === "worker" ? { PAYOUT_PRIVATE_KEY: liveEnv.PAYOUT_PRIVATE_KEY } : {}
    const child = spawn(process.execPath, ["server/src/main.ts", "--role", role], {
      cwd: root,
      env: { ...env, ...keys, PORT: port, HEALTH_PORT: port, ...more },
    })
    let output = ""
    for (const stream of [child.stdout, child.stderr]) stream.on("data", chunk => (output += chunk))
    const ended = once(child, "exit").then(([code]) => code as number | null)
    const program = { child, url: `http://127.0.0.1:${port}`, output: () => output, ended }
    programs.push(program)
    return program
  }
  const isUp = async ({ url }: Program): Promise<boolean> =>
    await fetch(`${url}/readyz`).then(
      answer => answer.ok,
      () => false,
    )
  async function started(role: "api" | "worker", more: Record<string, string> = {}): Promise<Program> {
    const program = await start(role, more)
    await until(`a ${role} is up`, async () => {
      expect(program.child.exitCode, program.output()).toBeNull()
      return await isUp(program)
    })
    return program
  }
  /** A process that is expected to end by itself: its exit code, and the sentence that it ends with. */
  async function refused(role: "api" | "worker", more: Record<string, string>): Promise<[number | null, string]> {
    const program = await start(role, more)
    const code = await program.ended
    return [code, program.output().slice(program.output().indexOf("Sluice can't run."))]
  }
  async function stop({ child, ended }: Program): Promise<void> {
    child.kill("SIGTERM")
    expect(await ended).toBe(0)
  }
  async function run(command: string[], more: Record<string, string>) {
    const child = spawn(process.execPath, ["server/src/operations/cli/sluice.ts", ...command], {
      cwd: root,
      env: { ...env, ...more },
    })
    let output = ""
    for (const stream of [child.stdout, child.stderr]) stream.on("data", chunk => (output += chunk))
    const [code] = await once(child, "close")
    return { code: code as number, output }
  }
  /** Has a process sign with a stored key, decrypt a stored secret, and store one, or fails with what it answers. */
  async function useSecrets({ url }: Program): Promise<void> {
    const call = async (method: string, path: string, body?: object) => {
      const init = { method, headers: bearer, ...(body ? { body: JSON.stringify(body) } : {}) }
      const answer = await fetch(url + path, init)
      const text = await answer.text()
      expect(answer.status, `${path} ${text}`).toBeLessThan(300)
      return JSON.parse(text)
    }
    await call("GET", "/.well-known/jwks.json")
    await call("PUT", "/api/console/settings", { payoutAddress: anvil.accounts[2].address })
    const { webhookSecret } = await call("GET", "/api/console/settings")
    account ??= webhookSecret
    expect([webhookSecret, webhookSecret]).toEqual([expect.stringMatching(/^whsec_…/), account])
    await call("POST", "/api/console/bundles", {
      name: "Weather",
      slug: `weather-${++made}`,
      originUrl: "https://api.weather.example/v1",
      originHeaders: { "x-key": "k1" },
      routes: [{ method: "GET", path: "/cities", price: 0 }],
    })
  }

  it("starts no process with another secret, and none that lacks the keys of its role", async () => {
    const api = await started("api")
    const worker = await started("worker")
    await useSecrets(api)
    for (const role of ["api", "worker"] as const)
      expect(await refused(role, { SECRET_KEY: WRONG })).toEqual([
        1,
        expect.stringMatching(/^Sluice can't run\. SECRET_KEY is not this installation's key.*Set the key that/),
      ])
    expect(await refused("worker", { PAYOUT_PRIVATE_KEY: "" })).toEqual([
      1,
      expect.stringMatching(
        /PAYOUT_PRIVATE_KEY must be set, or .*--role worker signs for PAYOUT_WALLET and needs its key/,
      ),
    ])
    // The API needs none, and the doctor says the same of both.
    expect(api.output()).toContain('"started"')
    const alone = { PAYOUT_PRIVATE_KEY: "" }
    expect((await run(["doctor", "--role", "worker"], alone)).output).toMatch(/fault +PAYOUT_PRIVATE_KEY must be set/)
    expect((await run(["doctor", "--role", "api"], alone)).output).not.toMatch(/fault/)
    const wrong = await run(["doctor", "--role", "api"], { SECRET_KEY: WRONG })
    expect(wrong.output.replace(/\s+/g, " ")).toMatch(/fault SECRET_KEY is not this installation's key/)
    // Nothing that they did outlives them.
    for (const program of [api, worker]) expect(await isUp(program)).toBe(true)
    await useSecrets(api)
    for (const program of [api, worker]) await stop(program)
  })

  it("changes its secret one process after the other, and each step refuses what could not read everything", async () => {
    let api = await started("api")
    const replace = async (more: Record<string, string>) => {
      const next = await started("api", more)
      await useSecrets(next)
      await useSecrets(api)
      await stop(api)
      api = next
    }
    await replace({ SECRET_KEY: OLD, SECRET_KEY_OTHER: NEW })
    await replace({ SECRET_KEY: NEW, SECRET_KEY_OTHER: OLD })
    const partial = /This installation's SECRET_KEY is being changed, and this process has only one/
    for (const SECRET_KEY of [OLD, NEW])
      expect(await refused("api", { SECRET_KEY })).toEqual([1, expect.stringMatching(partial)])
    expect(await run(["reencrypt"], { SECRET_KEY: NEW })).toMatchObject({
      code: 1,
      output: expect.stringMatching(partial),
    })
    const done = await run(["reencrypt"], { SECRET_KEY: NEW, SECRET_KEY_OTHER: OLD })
    expect(done).toEqual({ code: 0, output: expect.stringMatching(/^[1-9]\d* secrets were encrypted again\. All are/) })
    await replace({ SECRET_KEY: NEW })
    expect(await refused("api", { SECRET_KEY: OLD })).toEqual([
      1,
      expect.stringMatching(/SECRET_KEY is not this installation's key/),
    ])
    await stop(api)
  })

  it("starts with another secret after its own was lost, once a person has said so", async () => {
    const lost = ["reencrypt", "--lost"]
    expect(await run([...lost, "--yes", "--no"], { SECRET_KEY: WRONG })).toMatchObject({ code: 2 })
    expect(await run(["reencrypt", "--yes"], { SECRET_KEY: WRONG })).toMatchObject({ code: 2 })
    const counted = await run(lost, { SECRET_KEY: WRONG })
    expect(counted).toMatchObject({
      code: 1,
      output: expect.stringMatching(/bundle_headers +\d+\nNothing was changed\./),
    })
    expect(await refused("api", { SECRET_KEY: WRONG })).toEqual([
      1,
      expect.stringMatching(/run `sluice reencrypt --lost`/),
    ])
    const serving = await started("api", { SECRET_KEY: NEW })
    expect(await run([...lost, "--yes"], { SECRET_KEY: WRONG })).toMatchObject({
      code: 1,
      output: expect.stringMatching(/^1 process of the service uses this database\. Stop every process/),
    })
    await stop(serving)
    expect(await run([...lost, "--yes"], { SECRET_KEY: WRONG })).toMatchObject({
      code: 0,
      output: expect.stringMatching(/^Removed:[\s\S]*The database now records SECRET_KEY\. Start the service\.\n$/),
    })
    expect((await run(lost, { SECRET_KEY: WRONG })).code).toBe(0)
    const api = await started("api", { SECRET_KEY: WRONG })
    // The account's secret is another one.
    account = undefined
    await useSecrets(api)
    await stop(api)
  })
})
