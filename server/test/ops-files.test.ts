// What runs the service: `ops/Dockerfile`, `compose.yaml`, the systemd unit and the Helm chart, each read by its own tools, and all
// compared with each other.
import { execFile } from "node:child_process"
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { parse, parseAllDocuments } from "yaml"
import { networkNames } from "../src/platform/chain/network-facts.ts"
import { networkSettingsTable } from "../src/platform/config/network-settings-table.ts"
import { secretFilesOf } from "../src/platform/config/secret-files.ts"
import { settingsTable } from "../src/platform/config/settings-table.ts"
import { root } from "./e2e/program.ts"
import { type Anything, compose, image, ops } from "./ops-files.ts"
import { findOpsTools } from "./ops-tools.ts"

const unit = [...ops("sluice@.service").matchAll(/^(\w+)=(.*)$/gm)].map(([, name = "", value = ""]) => [name, value])
const ofUnit = (name: string): string[] => unit.filter(([each]) => each === name).map(([, value = ""]) => value)

/** The name of a setting, also of one that exists for each network. */
const isSetting = (name: string): boolean =>
  name in settingsTable ||
  secretFilesOf(networkNames).includes(name) ||
  Object.keys(networkSettingsTable).some(first => name.startsWith(`${first}_`) && !name.endsWith("_FILE"))

/** The secrets that each role needs and gets. The API signs for no wallet, and a worker limits nobody. */
const shared = ["DATABASE_URL", "RPC_BASE", "SECRET_KEY"]
const secretsOf: Record<string, string[]> = {
  api: [...shared, "REDIS_URL"],
  worker: [...shared, "PAYOUT_PRIVATE_KEY", "RELAY_PRIVATE_KEY"],
  migrate: ["DATABASE_URL"],
}
const isSecret = (name: string): boolean => secretFilesOf(networkNames).includes(`${name}_FILE`)

/** The oldest and the newest Kubernetes whose schemas the chart is checked against. */
const kubernetes = ["1.25.0", "1.37.0"] as const
const chart = join(root, "ops/chart")
/** What an installation may choose. Values that YAML takes for something else than text are among them. */
const valueSets: Record<string, object> = {
  "its defaults": {},
  "an ingress with TLS": {
    ingress: {
      enabled: true,
      className: "nginx",
      host: "*.example.com",
      tlsSecret: "pay-tls",
      annotations: {
        "cert-manager.io/cluster-issuer": "letsencrypt",
        "nginx.ingress.kubernetes.io/proxy-body-size": "1m",
      },
    },
  },
  "an ingress with its own class and certificate": { ingress: { enabled: true, host: "pay.example.com" } },
  "another secret, with Postgres and Redis elsewhere": {
    secrets: {
      api: { name: "2026", settings: ["DATABASE_URL", "DATABASE_REPLICA_URL", "SECRET_KEY", "METRICS_TOKEN"] },
      worker: { name: "2027", settings: ["DATABASE_URL", "SECRET_KEY"] },
    },
    image: { repository: "registry.example.com:5000/sluice", tag: "1.10", pullPolicy: "Always" },
    settings: { BASE_URL: "https://pay.example.com", NETWORKS: "base,optimism", TRUSTED_PROXIES: "10.0.0.0/8,::1/128" },
  },
  "other replicas and resources": {
    replicas: { api: 5, worker: 0 },
    resources: { requests: { cpu: 1, memory: "2Gi" }, limits: { cpu: 2.5, memory: "4Gi" } },
  },
}

let tools: Awaited<ReturnType<typeof findOpsTools>>
let scratch: string
// On a new machine this builds the tools.
beforeAll(async () => {
  scratch = mkdtempSync(join(tmpdir(), "sluice-ops-"))
  tools = await findOpsTools(kubernetes)
}, 2_400_000)
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

/** Runs a program, and answers its exit code and what it wrote. */
async function run(program: string, args: string[], options: { cwd?: string; env?: NodeJS.ProcessEnv } = {}) {
  return await promisify(execFile)(program, args, { maxBuffer: 16_000_000, ...options }).then(
    ({ stdout, stderr }) => ({ code: 0, out: stdout, errors: stderr }),
    error => {
      if (error.code === "ENOENT")
        throw new Error(`${program} is missing (systemd-analyze is in Debian's package systemd)`)
      if (typeof error.code !== "number") throw error
      return { code: error.code as number, out: error.stdout as string, errors: error.stderr as string }
    },
  )
}

/** A file of the values, as YAML, whose text may be given instead. */
function valuesFile(values: object | string): string {
  const file = join(mkdtempSync(join(scratch, "values-")), "values.yaml")
  writeFileSync(file, typeof values === "string" ? values : JSON.stringify(values))
  return file
}

/** What helm makes of the chart: the file, and its documents. Fails where helm does. */
async function render(values: object | string = {}, release = "sluice"): Promise<{ file: string; all: Anything[] }> {
  const { code, out, errors } = await run(tools.helm, ["template", release, chart, "--values", valuesFile(values)])
  expect([code, errors]).toEqual([0, ""])
  const file = join(mkdtempSync(join(scratch, "chart-")), "all.yaml")
  writeFileSync(file, out)
  const documents = parseAllDocuments(out)
  expect(documents.flatMap(({ errors, warnings }) => [...errors, ...warnings])).toEqual([])
  return { file, all: documents.map(document => document.toJS()) }
}
/** The pods of the API, the worker and the migration. */
const podsOf = (all: Anything[]): Anything[] =>
  ["Deployment sluice-api", "Deployment sluice-worker", "Job sluice-migrate"].map(
    name => oneOf(all, name).spec.template.spec,
  )
const isOfSecrets = ({ name }: { name: string }) => name === "secrets"
const nameOf = ({ kind, metadata }: Anything): string => `${kind} ${metadata.name}`
const oneOf = (all: Anything[], name: string): Anything => {
  const found = all.filter(each => nameOf(each) === name)
  expect(found).toHaveLength(1)
  return found[0]
}

describe("the chart", () => {
  it.each(Object.entries(valueSets))("is right for helm and Kubernetes with %s", async (_, values) => {
    const lint = await run(tools.helm, ["lint", "--strict", chart, "--values", valuesFile(values)])
    expect(lint).toMatchObject({ code: 0, out: expect.stringContaining("1 chart(s) linted, 0 chart(s) failed") })
    const { file, all } = await render(values)
    const roles = ["api", "worker"].flatMap(role => [`Deployment sluice-${role}`, `PodDisruptionBudget sluice-${role}`])
    const rest = ["ConfigMap sluice-settings", "Job sluice-migrate", "Service sluice"]
    const ingress = "ingress" in values ? ["Ingress sluice"] : []
    expect(all.map(nameOf).sort()).toEqual([...roles, ...rest, ...ingress].sort())
    for (const version of kubernetes) {
      const args = ["-strict", "-summary", "-output=json", `-kubernetes-version=${version}`]
      const checked = await run(tools.kubeconform, [...args, `-schema-location=${tools.schemas}`, file])
      const { resources, summary } = JSON.parse(checked.out)
      expect([resources, summary]).toEqual([[], { valid: all.length, invalid: 0, errors: 0, skipped: 0 }])
    }
  })

  it("uses the image, the secret and the ingress that were chosen", async () => {
    const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"))
    const chosen = async (name: string) => (await render(valueSets[name])).all
    for (const [name, used, secrets] of [
      ["its defaults", `sluice:${version}`, ["sluice-api", "sluice-worker", "sluice-migrate"]],
      [
        "another secret, with Postgres and Redis elsewhere",
        "registry.example.com:5000/sluice:1.10",
        ["2026", "2027", "sluice-migrate"],
      ],
    ] as const) {
      const pods = podsOf(await chosen(name))
      for (const { containers } of pods) {
        expect(containers[0].image).toBe(used)
        expect(containers[0].envFrom).toEqual([{ configMapRef: { name: "sluice-settings" } }])
      }
      expect(pods.map(({ volumes }) => volumes.find(isOfSecrets).secret.secretName)).toEqual(secrets)
    }
    const replicas = await chosen("other replicas and resources")
    expect(oneOf(replicas, "Deployment sluice-api").spec.replicas).toBe(5)
    expect(oneOf(replicas, "Deployment sluice-worker").spec.replicas).toBe(0)
    const { spec } = oneOf(await chosen("an ingress with TLS"), "Ingress sluice")
    expect(spec).toMatchObject({
      ingressClassName: "nginx",
      tls: [{ hosts: ["*.example.com"], secretName: "pay-tls" }],
      rules: [{ host: "*.example.com" }],
    })
    const noHost = await run(tools.helm, ["template", "sluice", chart, "--set", "ingress.enabled=true"])
    expect([noHost.code, noHost.errors]).toEqual([1, expect.stringContaining("ingress.host must be set")])
  })

  it("gives each role the secrets that it needs, as files that only its user can read", async () => {
    const { all } = await render()
    const { secrets } = parse(ops("chart/values.yaml"))
    expect(Object.keys(secrets)).toEqual(["api", "worker", "migrate"])
    const given = podsOf(all).map(({ volumes, containers, securityContext }) => {
      const { secret } = volumes.find(isOfSecrets)
      expect([secret.defaultMode, securityContext.fsGroup]).toEqual([0o440, securityContext.runAsGroup])
      const [{ env, volumeMounts }] = containers
      const { mountPath, readOnly } = volumeMounts.find(isOfSecrets)
      expect(readOnly).toBe(true)
      const names: string[] = secret.items.map(({ key, path }: Anything) => (key === path ? key : "?"))
      expect(env).toEqual(names.map(name => ({ name: `${name}_FILE`, value: `${mountPath}/${name}` })))
      return names.sort()
    })
    expect(given).toEqual(["api", "worker", "migrate"].map(role => [...(secretsOf[role] ?? [])].sort()))
    // What every process has is no secret.
    expect(Object.keys(oneOf(all, "ConfigMap sluice-settings").data).filter(isSecret)).toEqual([])
  })

  it("leads from the ingress to the API processes of its own release, and to no others", async () => {
    const releases = await Promise.all(
      ["sluice", "sluice-api"].map(name => render(valueSets["an ingress with TLS"], name)),
    )
    const labels = releases.map(({ all }) =>
      all.filter(({ kind }) => kind === "Deployment").map(each => each.spec.template.metadata.labels),
    )
    const [api, worker] = labels[0] ?? []
    const all = releases[0]?.all ?? []
    const matches = (selector: Record<string, string>, pod: Record<string, string>) =>
      Object.entries(selector).every(([name, value]) => pod[name] === value)
    const service = oneOf(all, "Service sluice").spec
    expect(labels.flat().filter(pod => matches(service.selector, pod))).toEqual([api])
    for (const [role, pod] of Object.entries({ api, worker }))
      for (const kind of ["Deployment", "PodDisruptionBudget"]) {
        const { matchLabels } = oneOf(all, `${kind} sluice-${role}`).spec.selector
        expect(labels.flat().filter(each => matches(matchLabels, each))).toEqual([pod])
      }
    const [port] = service.ports
    const { backend } = oneOf(all, "Ingress sluice").spec.rules[0].http.paths[0]
    expect(backend.service).toEqual({ name: "sluice", port: { name: port.name } })
    const [container] = oneOf(all, "Deployment sluice-api").spec.template.spec.containers
    expect(container.ports.map((each: Anything) => each.name)).toContain(port.targetPort)
  })

  it("shares no name between two releases in one namespace", async () => {
    const names = await Promise.all(
      ["sluice", "sluice-api"].map(async name => (await render({}, name)).all.map(nameOf)),
    )
    expect(names[0]?.length).toBeGreaterThan(5)
    expect(names[0]?.filter(name => names[1]?.includes(name))).toEqual([])
  })

  it("gives each setting the text that was written, also to a migration and after a rollback", async () => {
    const values = 'settings: { A: 12345678, B: true, C: 0.5, D: "007", E: \'a "b": &c #d $(e) {{ f }}\', F: "é\\n" }'
    const map = oneOf((await render(values)).all, "ConfigMap sluice-settings")
    expect(map.data).toMatchObject({
      A: "12345678",
      B: "true",
      C: "0.5",
      D: "007",
      E: 'a "b": &c #d $(e) {{ f }}',
      F: "é\n",
    })
    const hooks = map.metadata.annotations["helm.sh/hook"].split(",")
    expect(hooks.sort()).toEqual(["pre-install", "pre-rollback", "pre-upgrade"])
    const job = oneOf((await render()).all, "Job sluice-migrate")
    const weight = (each: Anything) => Number(each.metadata.annotations["helm.sh/hook-weight"])
    expect(weight(map)).toBeLessThan(weight(job))
  })
})

describe("the files that run it", () => {
  it("hadolint finds nothing in the Dockerfile", async () => {
    expect(await run(tools.hadolint, [join(root, "ops/Dockerfile")])).toMatchObject({ code: 0, out: "", errors: "" })
  })

  it("compose reads its file, asks for the value that has no default, and gives each role its secrets", async () => {
    writeFileSync(join(scratch, "sluice.env"), ops("sluice.env.example"))
    const read = (text: string) => {
      writeFileSync(join(scratch, "compose.yaml"), text)
      return run(tools.compose, ["-format=json", "compose.yaml"], { cwd: scratch, env: { PATH: process.env.PATH } })
    }
    const without = await read(ops("compose.yaml"))
    const asked = [...without.errors.matchAll(/required variable (\w+) is missing a value: set it in \.env/g)]
    expect([without.code, new Set(asked.map(([, name]) => name))]).toEqual([1, new Set(["DOMAIN"])])
    // Its program puts in no values of variables, as compose does.
    const whole = await read(ops("compose.yaml").replace(/\$\{DOMAIN:\?[^}]*\}/g, "pay.example.com"))
    expect([whole.code, whole.errors]).toEqual([0, ""])
    const { services, secrets } = JSON.parse(whole.out)
    expect(Object.keys(services).sort()).toEqual(["api", "caddy", "migrate", "postgres", "redis", "worker"])
    expect(services.api).toMatchObject({
      image: "sluice:latest",
      environment: { BASE_URL: "https://pay.example.com" },
      env_file: [{ path: expect.stringMatching(/\/sluice\.env$/), format: "raw" }],
    })
    for (const [role, names] of Object.entries(secretsOf)) {
      const { environment, secrets: given } = services[role]
      // The Redis of this file has no password.
      const files = names.filter(name => name !== "REDIS_URL").sort()
      expect(given.map(({ source }: Anything) => source).sort()).toEqual(files)
      const named = Object.entries(environment).filter(([name]) => name.endsWith("_FILE"))
      expect(named.sort()).toEqual(files.map(name => [`${name}_FILE`, `/run/secrets/${name}`]))
      expect(Object.keys(environment).filter(name => isSecret(name) && name !== "REDIS_URL")).toEqual([])
      for (const name of files) expect(secrets[name].file).toMatch(new RegExp(`/secrets/${name}$`))
    }
    expect(services.postgres.environment).toMatchObject({ POSTGRES_PASSWORD_FILE: "/run/secrets/POSTGRES_PASSWORD" })
  })

  it.runIf(process.platform === "linux")("systemd reads the unit without a word, and finds it safe", async () => {
    // Node may be elsewhere here.
    const file = join(scratch, "sluice@.service")
    writeFileSync(file, ops("sluice@.service").replace("=/usr/bin/node ", `=${process.execPath} `))
    for (const role of ["worker", "all"])
      cpSync(join(root, `ops/sluice@${role}.service.d`), join(scratch, `sluice@${role}.service.d`), { recursive: true })
    for (const name of ["sluice@api", "sluice@worker", "sluice@all"]) {
      const verified = await run("systemd-analyze", ["verify", "--man=no", join(scratch, `${name}.service`)])
      expect(verified).toEqual({ code: 0, out: "", errors: "" })
    }
    const safe = await run("systemd-analyze", ["security", "--offline=true", "--threshold=15", file])
    expect(safe).toMatchObject({ code: 0, out: expect.stringMatching(/Overall exposure level .* OK/) })
  })

  it("systemd hands each role the secrets that it needs, each as the file that its setting names", () => {
    const ofRole = (role: string) => {
      const dropIn = join(root, `ops/sluice@${role}.service.d/keys.conf`)
      const text = ops("sluice@.service") + (existsSync(dropIn) ? readFileSync(dropIn, "utf8") : "")
      const loaded = [...text.matchAll(/^LoadCredential=(\w+):\/etc\/sluice\/secrets\/\1$/gm)].map(
        ([, name = ""]) => name,
      )
      const named = [...text.matchAll(/\b(\w+)_FILE=%d\/\1(?= |$)/gm)].map(([, name = ""]) => name)
      expect(named.sort()).toEqual(loaded.sort())
      // The file of settings is the program's own to read: systemd's would count before these.
      expect(text).not.toMatch(/^EnvironmentFile=/m)
      return loaded
    }
    const isOfUnit = (name: string) => name !== "REDIS_URL"
    expect(ofRole("api")).toEqual(secretsOf.api?.filter(isOfUnit).sort())
    expect(ofRole("worker")).toEqual(secretsOf.worker?.sort())
    expect(ofRole("all")).toEqual(secretsOf.worker?.sort())
  })

  it("agree about the user, the command, the port, the folders and the time to stop", async () => {
    const user = image.last("USER")
    expect(user).toMatch(/^[1-9]\d{3,}:[1-9]\d{3,}$/)
    expect(image.commands(image.final).join(" ")).toContain(
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

    const { all } = await render()
    const deployment = oneOf(all, "Deployment sluice-api")
    const job = oneOf(all, "Job sluice-migrate")
    const values = parse(ops("chart/values.yaml"))
    for (const pod of [deployment.spec.template.spec, job.spec.template.spec]) {
      expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: uid, runAsGroup: gid, fsGroup: gid })
      const [container] = pod.containers
      expect(container.securityContext).toMatchObject({ readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } })
      const mounts = container.volumeMounts.map((mount: Anything) => mount.mountPath)
      expect(mounts.sort()).toEqual([image.environment.DATA_DIR, "/run/secrets/sluice", "/tmp"])
    }
    const [container] = deployment.spec.template.spec.containers
    expect(container).toMatchObject({
      args: ["start", "--role", "api"],
      ports: [{ containerPort: Number(port) }],
      livenessProbe: { httpGet: { path: "/healthz" } },
      readinessProbe: { httpGet: { path: "/readyz" } },
    })
    expect(Object.keys(values.replicas)).toEqual(["api", "worker"])
    expect(job.spec.template.spec.containers[0].args).toEqual(["migrate"])
    const graceS = deployment.spec.template.spec.terminationGracePeriodSeconds
    expect(graceS).toBeGreaterThan(Number.parseInt(values.settings.DRAIN, 10) + 20)

    expect(ofUnit("ExecStart")).toEqual([
      "/usr/bin/node /opt/sluice/bin/sluice.js start --role %i --env-file /etc/sluice/env",
    ])
    expect(ofUnit("User")).toEqual(["sluice"])
    expect(Number(ofUnit("TimeoutStopSec"))).toBeGreaterThan(drainS + 20)
  })

  it("name only settings that exist", () => {
    const example = [...ops("sluice.env.example").matchAll(/^([A-Z_]+)=/gm)].map(match => match[1] ?? "")
    const values = parse(ops("chart/values.yaml"))
    const listed = Object.values<{ settings: string[] }>(values.secrets).flatMap(({ settings }) => settings)
    const secret = /(A Secret may have more[\s\S]*?)\.\n/.exec(ops("chart/values.yaml"))?.[1] ?? ""
    const ofTheUnit = ofUnit("Environment").flatMap(line => line.split(" ").map(pair => pair.split("=")[0] ?? ""))
    const named = [
      ...example,
      ...listed,
      ...(secret.match(/[A-Z]+_[A-Z_]+/g) ?? []),
      ...Object.keys(values.settings),
      ...Object.keys(compose.services.api.environment),
      ...[...ofTheUnit, ...Object.keys(image.environment)].filter(name => name !== "NODE_ENV"),
    ]
    expect(named.length).toBeGreaterThan(25)
    expect(named.filter(name => !isSetting(name))).toEqual([])
  })
})
