/** The real tools that read the files of `ops`: each of one version with its checksum, made once and kept beside the npm packages. */
import { execFile } from "node:child_process"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs"
import { basename, join } from "node:path"
import { promisify } from "node:util"
import { root } from "./e2e/program.ts"
import { findPython } from "./python.ts"

const run = promisify(execFile)

/** The sum is the module's as in a `go.sum`. Go compares what the module needs with the public log of such sums. */
const goTools = {
  helm: {
    module: "helm.sh/helm/v3",
    version: "v3.22.0",
    sum: "h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=",
    source: "cmd/helm",
  },
  kubeconform: {
    module: "github.com/yannh/kubeconform",
    version: "v0.7.0",
    sum: "h1:ZFfniR8VChrWQxaxTUGnNrxw8RIDkjVBrjdhXSamwjw=",
    source: "cmd/kubeconform",
  },
  /** What `docker compose config` reads the file with. All of compose takes minutes to build, and this takes seconds. */
  compose: {
    module: "github.com/compose-spec/compose-go/v2",
    version: "v2.16.2",
    sum: "h1:pTp1DqQwJzFd85GzlWsSszKA1ABrV/ySqsClujIcWA8=",
    source: "cmd",
  },
}

/** The path of a tool, which is built where it isn't there. Throws what keeps it from being there. */
async function goTool(name: keyof typeof goTools): Promise<string> {
  const { module, version, sum, source } = goTools[name]
  const folder = join(root, "node_modules/.ops-tools")
  const program = join(folder, `${name}-${version}`)
  if (existsSync(program)) return program
  mkdirSync(folder, { recursive: true })
  const scratch = mkdtempSync(join(folder, "build-"))
  try {
    const downloaded = await run("go", ["mod", "download", "-json", `${module}@${version}`], { cwd: scratch })
    const found = JSON.parse(downloaded.stdout).Sum
    if (found !== sum) throw new Error(`its checksum is ${found}, not ${sum}`)
    const env = { ...process.env, GOBIN: scratch, GOFLAGS: "-mod=mod" }
    // The other tests go on beside it.
    await run("nice", ["-n", "10", "go", "install", `${module}/${source}@${version}`], { cwd: scratch, env })
    renameSync(join(scratch, basename(source)), program)
    return program
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code === "ENOENT" ? "there is no Go" : (error as Error).message
    throw new Error(`${name} can't be built, which needs Go 1.26 or newer (https://go.dev/dl): ${reason}`)
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}

/** Puts the schemas of a version of Kubernetes where kubeconform reads them: beside each other, without the address of their origin. */
function placeSchemas(from: string, to: string): void {
  if (existsSync(to)) return
  mkdirSync(`${to}.new`, { recursive: true })
  for (const name of readdirSync(from)) {
    const text = readFileSync(join(from, name), "utf8").replaceAll('"/api/_definitions.json', '"_definitions.json')
    const { $id: _, ...schema } = JSON.parse(text)
    writeFileSync(join(`${to}.new`, name), JSON.stringify(schema))
  }
  renameSync(`${to}.new`, to)
}

/** The tools' paths, and for kubeconform the pattern of the schemas' paths. Throws where one can't be had: none is left out. */
export async function findOpsTools(kubernetes: readonly string[]) {
  const python = await findPython("ops", "server/test/ops-requirements.txt")
  if ("missing" in python) throw new Error(python.missing)
  const lib = join(python.folder, "lib")
  const [version = ""] = readdirSync(lib)
  const shipped = join(lib, version, "site-packages/kubernetes_validate/kubernetes-json-schema")
  const schemas = join(python.folder, "schemas")
  const helm = join(python.folder, "bin/helm")
  for (const each of kubernetes) placeSchemas(join(shipped, `v${each}-local-strict`), join(schemas, `v${each}`))
  return {
    // Built, it takes two and a half minutes of CPU: only where PyPI has no program for this machine.
    helm: existsSync(helm) ? helm : await goTool("helm"),
    kubeconform: await goTool("kubeconform"),
    compose: await goTool("compose"),
    hadolint: join(python.folder, "bin/hadolint"),
    schemas: join(schemas, "{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json"),
  }
}
