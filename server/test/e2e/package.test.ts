// The package for operators, run as `ops/Dockerfile` and `compose.yaml` say. No container can be built here, so this does what they
// say: their commands, as their user, with their environment, on a tree that they can't write.
import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import {
  chmodSync,
  chownSync,
  constants,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { type Hex, parseEther } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { pack } from "../../../ops/pack.ts"
import { parseEnvFile } from "../../src/platform/config/env-file.ts"
import { type Anvil, deploySanctionsList, deployTestUsdc, placeSharedContracts, startAnvil } from "../anvil.ts"
import { compose, image } from "../ops-files.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { freePort, root, until } from "./program.ts"

const steps = [
  ...readFileSync(join(root, "docs/operators/operations.md"), "utf8").matchAll(
    /^ *```sh live(.*)\n([\s\S]*?)^ *```$/gm,
  ),
].map(match => ({ kind: match[1]?.trim() ?? "", text: (match[2] ?? "").replace(/^ {3}/gm, "") }))

// The steps of docs/operators/operations.md, from nothing to a live network, on a chain and a Postgres of the test's own.
describe.runIf(postgresBinaries())("the package, installed as the document says", () => {
  let dir: string
  let postgres: TestPostgres
  let anvil: Anvil
  let settings: Record<string, string>
  let places: [string, string][]
  let port: string
  const children: ChildProcess[] = []
  const [uid = 0, gid = 0] = image.last("USER").split(":").map(Number)
  const isRoot = process.getuid?.() === 0
  /** Whether this machine lets us make all but the data folder read-only, as in the container. */
  const canMount = isRoot && spawnSync("unshare", ["--mount", "mount", "-o", "remount,bind,ro", "/"]).status === 0
  const at = (name: string) => join(dir, name)
  /** Where the link to the installed version leads. */
  const installedAt = () => realpathSync(at("app"))

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), "sluice-package-"))
    chmodSync(dir, 0o755)
    for (const name of ["bin", "data"]) mkdirSync(at(name))
    chmodSync(at("data"), 0o700)
    if (isRoot) chownSync(at("data"), uid, gid)
    // The image's user may not reach the Node of this clone, below a folder that only root may enter.
    copyFileSync(process.execPath, at("bin/node"), constants.COPYFILE_FICLONE)
    const [archive] = await Promise.all([
      pack(dir),
      startPostgres({ fsync: true }).then(started => (postgres = started)),
      startAnvil({ chainId: 8453, blockTime: 1 }).then(started => (anvil = started)),
    ])
    await placeSharedContracts(anvil.client)
    port = `${await freePort()}`
    places = [
      [
        /https:\/\/rpc\.first\S*/.exec(steps[1]?.text ?? "")?.[0] ?? "?",
        `${anvil.rpcUrl},${anvil.rpcUrl.replace("127.0.0.1", "localhost")}`,
      ],
      ["dist/sluice-0.1.0.tgz", archive],
      ["/opt/sluice", at("app")],
      ["/usr/local/bin", at("bin")],
      ["/etc/sluice", at("etc")],
      ["/var/lib/sluice", at("data")],
      ["@127.0.0.1/", `@${new URL(postgres.url).host}/`],
      ["127.0.0.1:4000", `127.0.0.1:${port}`],
    ]
    settings = {
      PATH: [at("bin"), process.env.PATH, postgresBinaries()].join(":"),
      HOME: at("home"),
      PGPORT: new URL(postgres.url).port,
      GUARDIAN: anvil.accounts[5].address,
      // No account of a development tool: live mode invites none.
      MERCHANT: "0xd8da6bf26964af9d7eed9e03e53415d37aa96045",
      // The chain is the test's own, and so is its token; the public escrow is not on it.
      TOKEN_BASE: await deployTestUsdc(anvil.client),
      ESCROW_BASE: "off",
      SANCTIONS_ORACLE_BASE: await deploySanctionsList(anvil.client),
      npm_config_prefer_offline: "true",
      npm_config_cache: join(process.env.HOME ?? "", ".npm"),
    }
  })
  afterAll(async () => {
    for (const child of children) if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL")
    await Promise.all([postgres?.stop(), anvil?.stop()])
    rmSync(dir, { recursive: true, force: true })
  })

  async function step(n: number): Promise<{ code: number; out: string; errors: string }> {
    const text = places.reduce((all, [from, to]) => all.replaceAll(from, to), steps[n]?.text ?? "")
    return await promisify(execFile)("bash", ["-euo", "pipefail", "-c", text], { cwd: dir, env: settings }).then(
      ({ stdout, stderr }) => ({ code: 0, out: stdout, errors: stderr }),
      ({ code, stdout, stderr }) => ({ code, out: stdout, errors: stderr }),
    )
  }

  /**
   * Starts a role as compose.yaml does: with its environment and the image's, its secrets as files, as its user, on a tree that is
   * read-only.
   */
  function start(role: "api" | "worker", changed: Record<string, string> = {}) {
    const { command, environment, secrets } = compose.services[role]
    const folder = at(`data/secrets-${role}`)
    mkdirSync(folder, { recursive: true })
    for (const name of secrets) {
      rmSync(join(folder, name), { force: true })
      copyFileSync(at(`etc/secrets/${name}`), join(folder, name))
      chmodSync(join(folder, name), 0o400)
      if (isRoot) chownSync(join(folder, name), uid, gid)
    }
    const ofCompose = Object.entries(environment as Record<string, string>)
      .filter(([name, value]) => !value.includes("$") && name !== "REDIS_URL")
      .map(([name, value]) => [name, value.replace("/run/secrets", folder)])
    // The file of settings has no secret, and names those of the machine: the operator's own.
    const ofFile = Object.entries(parseEnvFile(readFileSync(at("etc/env"), "utf8")))
    const env = {
      ...image.environment,
      ...settings,
      ...Object.fromEntries(ofFile.filter(([name]) => !name.endsWith("_FILE"))),
      ...Object.fromEntries(ofCompose),
      ...(role === "worker" ? { HEALTH_PORT: `${Number(port) + 20_000}` } : { PORT: port }),
      HOME: "/nonexistent",
      ...changed,
    } as Record<string, string>
    const user = ["setpriv", `--reuid=${uid}`, `--regid=${gid}`, "--clear-groups", "--no-new-privs"]
    // The temporary folder may be on a file system of its own.
    const parts = [`mount --bind ${dir} ${dir}`, `mount --bind ${at("data")} ${at("data")}`]
    const frozen = [...parts, `mount -o remount,bind,ro ${dir}`, "mount -o remount,bind,ro /", 'exec "$@"'].join(" && ")
    const [program = "", ...args] = [
      ...(canMount ? ["unshare", "--mount", "sh", "-c", frozen, "sh"] : []),
      ...(isRoot ? user : []),
      ...image.list("ENTRYPOINT"),
      ...command,
    ]
    const child = spawn(program, args, { cwd: at("data"), env })
    children.push(child)
    let output = ""
    for (const stream of [child.stdout, child.stderr]) stream.on("data", chunk => (output += chunk))
    const ended = once(child, "close").then(([code]) => code as number | null)
    const get = (path: string) =>
      fetch(`http://127.0.0.1:${role === "worker" ? env.HEALTH_PORT : env.PORT}${path}`).catch(() => undefined)
    return { child, env, get, output: () => output, ended }
  }

  it("has no package of development, and none of the sandbox", async () => {
    expect(await step(0)).toMatchObject({ code: 0 })
    // The Dockerfile does the same.
    const [unpack = "", install = ""] = image.commands(image.build).slice(-2)
    for (const command of [unpack.replace(/dist.*/, ""), install]) expect(steps[0]?.text).toContain(command.trim())
    const packagesOf = (file: string) => JSON.parse(readFileSync(join(root, file), "utf8")).packages
    const lock = packagesOf("package-lock.json")
    // What the built console and site consist of is named too, and nothing of it is installed.
    const ofPages = { ...packagesOf("site/package-lock.json"), ...packagesOf("web/src/console/package-lock.json") }
    const installed = readdirSync(at("app/node_modules"), { recursive: true, encoding: "utf8" })
      .map(name => /^(?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/@]+(?=\/package\.json$)/.exec(name)?.[0])
      .filter(name => name !== undefined)
    const bundled: { name: string; version: string }[] = JSON.parse(
      readFileSync(at("app/sbom.cdx.json"), "utf8"),
    ).components
    const named = bundled.map(({ name }) => name)
    expect(named).toEqual(expect.arrayContaining(["fastify", "kysely", "pg", "undici", "viem"]))
    // A package that others need in another version is in the lockfile under theirs, too.
    const versionsOf = (name: string) =>
      [lock, ofPages]
        .flatMap(each => Object.entries<{ version: string }>(each))
        .filter(([path]) => path.endsWith(`node_modules/${name}`))
        .map(([, { version }]) => version)
    for (const { name, version } of bundled) expect(versionsOf(name)).toContain(version)
    const needed = Object.keys(JSON.parse(readFileSync(join(root, "server/package.json"), "utf8")).dependencies)
    // That one has types alone.
    expect(needed.filter(name => ![...named, ...installed].includes(name))).toEqual(["@fastify/type-provider-typebox"])
    const ofServer = named.filter(name => ofPages[`node_modules/${name}`] === undefined)
    // The command line has a version of its own where tools of development need an older one.
    const entryOf = (name: string) => lock[`cli/node_modules/${name}`] ?? lock[`node_modules/${name}`]
    expect([...ofServer, ...installed].filter(name => entryOf(name)?.dev)).toEqual([])
    expect(named).toEqual(expect.arrayContaining(["@mantine/core", "@astrojs/starlight"]))
    const terms = readFileSync(at("app/THIRD_PARTY_LICENSES.txt"), "utf8")
    for (const { name, version } of bundled) expect(terms).toContain(`${name} ${version} (`)
    expect(
      ["@foundry-rs/anvil", "oidc-provider", "vite", "typescript"].filter(name =>
        [...named, ...installed].includes(name),
      ),
    ).toEqual([])
    expect(installed).toEqual(expect.arrayContaining(["@aws-sdk/client-kms", "google-auth-library"]))
    const ours = readdirSync(installedAt(), { recursive: true, encoding: "utf8" }).filter(
      name => !name.startsWith("node_modules"),
    )
    expect(ours.filter(name => /\.tsx?$|\.test\.|^contracts/.test(name))).toEqual([])
  })

  it("has every file that its documents lead to", () => {
    const pages = readdirSync(at("app/docs"), { recursive: true, encoding: "utf8" }).filter(name =>
      name.endsWith(".md"),
    )
    const broken = ["README.md", ...pages.map(name => `docs/${name}`)].flatMap(page => {
      const text = readFileSync(at(`app/${page}`), "utf8")
      const links = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = ""]) => link.split("#")[0] ?? "")
      return links
        .filter(link => link !== "" && !/^[a-z]+:/.test(link))
        .filter(link => !existsSync(join(at(`app/${page}`), "..", link)))
        .map(link => `${page}: ${link}`)
    })
    expect(pages.length).toBeGreaterThan(20)
    expect(broken).toEqual([])
  })

  it("is what its own Dockerfile makes an image of", async () => {
    // As COPY does, without what the file beside it leaves out.
    const source = at("context")
    cpSync(installedAt(), source, {
      recursive: true,
      filter: path => !path.startsWith(join(installedAt(), "node_modules")),
    })
    const lines = [...image.build.matchAll(/^RUN (.*)$/gm)].map(match => match[1] ?? "")
    for (const line of lines.slice(0, 2))
      await promisify(execFile)("bash", ["-euo", "pipefail", "-c", line.replaceAll("/package", at("built"))], {
        cwd: source,
        env: settings,
      })
    const files = (folder: string) =>
      readdirSync(folder, { recursive: true, encoding: "utf8" }).filter(name => !name.startsWith("node_modules"))
    expect(files(at("built")).sort()).toEqual(files(installedAt()).sort())
  })

  it("leads from nothing to a service that is ready, as a user that can't write it", async () => {
    expect(steps.map(({ kind }) => kind)).toEqual(["", "", "", "exits-1", "", "doctor", "", ""])
    expect(await step(1)).toMatchObject({ code: 0 })
    for (const name of readdirSync(at("etc/secrets")))
      expect(statSync(at(`etc/secrets/${name}`)).mode & 0o777).toBe(0o600)
    expect(statSync(at("etc/secrets")).mode & 0o777).toBe(0o700)
    expect(readFileSync(at("etc/env"), "utf8")).not.toMatch(/\b(0x)?[0-9a-f]{64}\b|postgres:|rpc\./)
    expect(await step(2)).toMatchObject({ code: 0, out: expect.stringContaining("now has this version's schema") })
    const before = await step(3)
    expect([before.code, before.out]).toEqual([1, expect.stringContaining("DEPOSIT_FACTORY_BASE must be set")])
    const wallets = [...before.out.replace(/\s+/g, " ").matchAll(/Send ether to (0x[0-9a-fA-F]{40})/g)]
    expect(wallets.length).toBe(2)
    for (const [, address] of wallets)
      await anvil.client.setBalance({ address: address as Hex, value: parseEther("1") })
    expect(await step(4)).toMatchObject({ code: 0 })

    const api = start("api")
    const worker = start("worker")
    await until("both are ready or dead", async () => {
      if (api.child.exitCode !== null || worker.child.exitCode !== null) return true
      return (await api.get("/readyz"))?.status === 200 && (await worker.get("/readyz"))?.status === 200
    })
    expect([api, worker].find(({ child }) => child.exitCode !== null)?.output()).toBeUndefined()
    // The process that strangers reach has no key of a wallet, in its environment or in a file.
    const ofApi = [...Object.values(api.env), ...readdirSync(at("data/secrets-api"))].join(" ")
    expect(ofApi).not.toMatch(/PRIVATE_KEY/)
    for (const name of ["PAYOUT_PRIVATE_KEY", "RELAY_PRIVATE_KEY", "SECRET_KEY"])
      expect(JSON.stringify([api.env, worker.env])).not.toContain(
        readFileSync(at(`etc/secrets/${name}`), "utf8").trim(),
      )
    // Nothing answers at that domain here.
    const alarms = (await step(5)).out.match(/^ {2}(alarm|fault) .*/gm)
    expect(alarms).toEqual([expect.stringContaining("BASE_URL can't be reached")])
    expect(await step(6)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^Invited eip155:8453:0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045 of/),
    })
    expect(await step(7)).toMatchObject({
      code: 0,
      errors: expect.stringMatching(/^Wrote .*\.dump\.\nIt is a copy of the Postgres database [\w.:]+\/\w+\.$/m),
    })

    // The pages and the documentation are in it, and the image's own probe is content.
    for (const path of ["/embed.js", "/docs/"]) expect((await api.get(path))?.status).toBe(200)
    const [command = "", ...args] = image.list("HEALTHCHECK")
    execFileSync(
      command,
      args.map(arg => arg.replace(image.environment.PORT ?? "", port)),
      { env: api.env },
    )
    expect(api.output()).toMatch(/"level":"info".*"route":"\/embed.js"/)
    expect(api.output()).not.toContain('/readyz"')
    // Node warns of what a next version of a package will refuse, for example two statements at once on a connection.
    for (const { output } of [api, worker]) expect(output()).not.toContain("Warning:")
    api.child.kill("SIGUSR2")
    await until("it logs more", async () => {
      await api.get("/healthz")
      return /"level":"debug".*"route":"\/healthz"/.test(api.output())
    })
    for (const { child } of [worker, api]) child.kill("SIGTERM")
    await until("the API drains", async () => (await api.get("/readyz"))?.status === 503)
    // A second signal ends the drain.
    api.child.kill("SIGTERM")
    expect([await worker.ended, await api.ended]).toEqual([0, 0])
  })

  it("says that the sandbox is not part of it", async () => {
    const env = { ...settings, DATA_DIR: at("sandbox") }
    const error = await promisify(execFile)("sluice", ["start"], { env }).catch(reason => reason)
    expect([error.code, error.stderr]).toEqual([1, expect.stringContaining("this installation has no sandbox")])
  })
})
