// The folder's lock and its files, with real processes that are killed.
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { lockDataDir, readJsonIfThere, writeFileAtomic } from "./data-dir.ts"

const module = JSON.stringify(new URL("./data-dir.ts", import.meta.url).href)

let parent: string
let dir: string
let children: ChildProcess[] = []

beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), "sluice-dir-"))
  dir = join(parent, "data")
})

afterEach(async () => {
  for (const child of children) await kill(child)
  children = []
  rmSync(parent, { recursive: true })
})

/** A process that runs `code` with the module's functions and `dir`; resolves when it has printed something. */
async function program(code: string): Promise<ChildProcess> {
  const source = `import { lockDataDir, writeFileAtomic } from ${module}
    const dir = ${JSON.stringify(dir)}
    ${code}`
  const args = ["--expose-gc", "--input-type=module", "-e", source]
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] })
  children.push(child)
  await once(child.stdout, "data")
  return child
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill("SIGKILL")
  await once(child, "exit")
}

// The returned function is dropped and garbage is collected: the lock must survive both.
const holds = `lockDataDir(dir)
  await new Promise(setImmediate)
  gc()
  await new Promise(setImmediate)
  process.stdout.write("locked")
  setInterval(() => {}, 1000)`

test("the folder is made for its owner alone", () => {
  lockDataDir(dir)()
  expect(statSync(dir).mode & 0o777).toBe(0o700)
})

test("a second process learns which folder is in use and what to do", async () => {
  await program(holds)
  expect(() => lockDataDir(dir)).toThrow(
    expect.objectContaining({ code: "DATA_DIR_BUSY", message: expect.stringMatching(`${dir}.*DATA_DIR`) }),
  )
})

test("a lock ends with its process, also by SIGKILL, and with its release, also twice", async () => {
  await kill(await program(holds))
  const release = lockDataDir(dir)
  expect(() => lockDataDir(dir)).toThrow("in use")
  release()
  release()
  lockDataDir(dir)()
})

test("a file is replaced whole, with its mode, and nothing else remains", async () => {
  lockDataDir(dir)()
  const path = join(dir, "keys.json")
  writeFileSync(path, "old", { mode: 0o644 })
  await writeFileAtomic(path, "new", 0o600)
  expect(readFileSync(path, "utf8")).toBe("new")
  expect(statSync(path).mode & 0o777).toBe(0o600)
  await writeFileAtomic(path, "for all", 0o666)
  expect(statSync(path).mode & 0o777).toBe(0o666)
  await Promise.all(["a", "b", "c"].map(text => writeFileAtomic(path, text, 0o600)))
  expect(["a", "b", "c"]).toContain(readFileSync(path, "utf8"))
  expect(readdirSync(dir).sort()).toEqual(["keys.json", "lock"])
})

test("a failed write leaves the old file and no temporary one", async () => {
  lockDataDir(dir)()
  const path = join(dir, "folder")
  lockDataDir(path)()
  await expect(writeFileAtomic(path, "text", 0o600)).rejects.toThrow("EISDIR")
  expect(readdirSync(dir).sort()).toEqual(["folder", "lock"])
})

test("killed while writing: the file is whole, and the next lock removes what was left", async () => {
  const path = join(dir, "state.json")
  for (let i = 0; i < 5; i++) {
    const writer = await program(`
      lockDataDir(dir)
      const text = JSON.stringify("x".repeat(4_000_000))
      await writeFileAtomic(dir + "/state.json", text, 0o600)
      process.stdout.write("writing")
      for (;;) await writeFileAtomic(dir + "/state.json", text, 0o600)`)
    await kill(writer)
    expect(readJsonIfThere(path)).toHaveLength(4_000_000)
  }
  writeFileSync(join(dir, ".state.json.1-1.tmp"), "half")
  writeFileSync(join(dir, ".other.tmp"), "somebody else's")
  lockDataDir(dir)()
  expect(readdirSync(dir).sort()).toEqual([".other.tmp", "lock", "state.json"])
})

test("JSON is read where it is there", () => {
  const path = join(parent, "some.json")
  expect(readJsonIfThere(path)).toBeUndefined()
  writeFileSync(path, `{"a":1}`)
  expect(readJsonIfThere(path)).toEqual({ a: 1 })
  writeFileSync(path, `{"a":`)
  expect(() => readJsonIfThere(path)).toThrow(`${path} is not JSON`)
  expect(existsSync(path)).toBe(true)
})
