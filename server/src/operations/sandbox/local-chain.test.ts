// The local chain with the real anvil: what it keeps, over clean stops and over kills.
import { type ChildProcess, execFile, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createServer, type Server } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { setTimeout as sleep } from "node:timers/promises"
import { promisify } from "node:util"
import { expect, test, vi } from "vitest"
import { freePort, until } from "../../../test/e2e/program.ts"
import { anvilPath } from "./anvil.ts"
import { type LocalChain, startLocalChain } from "./local-chain.ts"

type Block = { number: string; hash: string; timestamp: string }
type Receipt = { blockNumber: string; blockHash: string; logs: unknown[] }

const MONTH_SECONDS = 31 * 24 * 60 * 60
/** Init code that emits one empty log. */
const LOGGING_CODE = "0x60006000a0"

async function listenOn(port: number): Promise<Server> {
  const server = createServer().listen(port, "127.0.0.1")
  await once(server, "listening")
  return server
}

const eventually = (holds: () => boolean | Promise<boolean>) => until(String(holds), holds)

const run = promisify(execFile)

/** Whether a process is there and not a zombie. */
async function running(pid: number): Promise<boolean> {
  // It fails where there is no such process.
  const { stdout } = await run("ps", ["-o", "stat=", "-p", `${pid}`]).catch(() => ({ stdout: "" }))
  const state = stdout.trim()
  return state !== "" && !state.startsWith("Z")
}

/** The text of a program that starts the chain of a place and then runs `code`. */
function programSource(dir: string, port: number, code: string): string {
  return `
    import { startLocalChain } from ${JSON.stringify(new URL("./local-chain.ts", import.meta.url).href)}
    const say = line => process.stdout.write(line + "\\n")
    const log = { info() {}, warn() {}, error(o) { say("error " + o.err) } }
    const dir = ${JSON.stringify(dir)}
    const o = { dir, port: ${port}, chainId: 84532, timeOffsetSeconds: 0, busy: async () => false, log }
    say("begins")
    const chain = await startLocalChain(o)
    const rpc = async (method, ...params) => {
      const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params })
      const answer = await fetch(chain.rpcUrl, { method: "POST", headers: { "content-type": "application/json" }, body })
      return (await answer.json()).result
    }
    const [from, to] = await rpc("eth_accounts")
    const send = async () => {
      const hash = await rpc("eth_sendTransaction", { from, to, value: "0x1" })
      while (!(await rpc("eth_getTransactionReceipt", hash)));
      return hash
    }
    say("anvil " + chain.pid)
    ${code}`
}

/** Requests to the chain on a port. */
function requestsTo(port: number) {
  async function rpc<T = string>(method: string, ...params: unknown[]): Promise<T> {
    const answer = await fetch(`http://127.0.0.1:${port}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    })
    const { result, error } = (await answer.json()) as { result: T; error?: { message: string } }
    if (error) throw new Error(error.message)
    return result
  }

  const block = (tag: string) => rpc<Block>("eth_getBlockByNumber", tag, false)
  const height = async () => Number((await block("latest")).number)
  const time = async () => Number((await block("latest")).timestamp)
  const wallTime = () => Math.floor(Date.now() / 1000)

  /**
   * Expects the chain's clock to be this far ahead: `work` mines a block, whose time is compared with the wall time
   * before and after.
   */
  async function expectAhead(seconds: number, work: () => Promise<void>): Promise<void> {
    const before = wallTime() + seconds
    await work()
    const after = wallTime() + seconds
    const at = await time()
    expect(at).toBeGreaterThanOrEqual(before - 2)
    expect(at).toBeLessThanOrEqual(after + 2)
  }
  const receipt = (hash: string) => rpc<Receipt | null>("eth_getTransactionReceipt", hash)

  async function send(tx: object = {}): Promise<string> {
    const [from, to] = await rpc<string[]>("eth_accounts")
    const hash = await rpc<string>("eth_sendTransaction", {
      from,
      ...("data" in tx ? {} : { to, value: "0x1" }),
      ...tx,
    })
    // Anvil answers before it has mined.
    await eventually(async () => (await receipt(hash)) !== null)
    return hash
  }
  return { rpc, block, height, time, receipt, send, expectAhead }
}

/** A folder and a port of one test's own, what it starts there, and its requests. */
type Place = Awaited<ReturnType<typeof newPlace>>

async function newPlace() {
  const dir = mkdtempSync(join(tmpdir(), "sluice chain-"))
  const port = await freePort()
  const logged: { level: string; msg: string }[] = []
  const chains: LocalChain[] = []
  const programs: ChildProcess[] = []

  async function start(o: Partial<Parameters<typeof startLocalChain>[0]> = {}): Promise<LocalChain> {
    const level = (level: string) => (_: object, msg: string) => void logged.push({ level, msg })
    const log = { info: level("info"), warn: level("warn"), error: level("error") }
    const busy = async () => false
    const chain = await startLocalChain({ dir, port, chainId: 84532, timeOffsetSeconds: 0, busy, log, ...o })
    chains.push(chain)
    return chain
  }

  /** A process of its own that starts the chain and then runs `code`; its lines go to `heard`. */
  function program(code: string): { child: ChildProcess; heard: string[] } {
    const source = programSource(dir, port, code)
    const child = spawn(process.execPath, ["--input-type=module", "-e", source], {
      stdio: ["ignore", "pipe", "inherit"],
    })
    programs.push(child)
    const heard: string[] = []
    createInterface(child.stdout).on("line", line => heard.push(line))
    return { child, heard }
  }

  /** The port is free, and no process of this chain is left except zombies, whose arguments are gone. */
  async function nothingLeft(): Promise<boolean> {
    try {
      const server = await listenOn(port)
      server.close()
      await once(server, "close")
    } catch {
      return false
    }
    const { stdout } = await run("ps", ["-eo", "args"])
    return !stdout.includes(join(dir, "chain-exit.json"))
  }

  async function remove(): Promise<void> {
    for (const child of programs) if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL")
    await Promise.all(chains.map(chain => chain.stop()))
    await eventually(nothingLeft)
    rmSync(dir, { recursive: true })
  }

  const requests = requestsTo(port)
  const stateText = () => readFileSync(join(dir, "chain-state.json"), "utf8")
  return { dir, port, logged, start, program, nothingLeft, stateText, remove, ...requests }
}

/**
 * Most of these tests wait for blocks or for an end. So each has a folder of its own, five run at once, and the longest
 * are first.
 */
function testInPlace(name: string, work: (place: Place) => Promise<void>): void {
  test.concurrent(name, async () => {
    const place = await newPlace()
    await work(place).finally(place.remove)
  })
}

const sendsAndSaves = `for (;;) { const hash = await send(); await chain.save(); say("saved " + hash) }`
const words = (heard: string[], first: string) =>
  heard.filter(line => line.startsWith(`${first} `)).map(line => line.slice(first.length + 1))

async function killed(child: ChildProcess): Promise<void> {
  const exit = once(child, "exit")
  child.kill("SIGKILL")
  await exit
}

test("a platform without a package is reported with the missing package", () => {
  expect(() => anvilPath("linux", "riscv64")).toThrow("not on linux riscv64")
  expect(() => anvilPath("win32", "x64")).toThrow("not on win32 x64")
  const foreign = process.platform === "darwin" ? "linux" : "darwin"
  expect(() => anvilPath(foreign, "x64")).toThrow(`@foundry-rs/anvil-${foreign}-amd64`)
})

testInPlace("while nothing waits there is a block every ten seconds", async ({ start, height }) => {
  const began = Date.now()
  await start()
  await eventually(async () => (await height()) >= 1)
  expect(Date.now() - began).toBeGreaterThan(9_500)
})

testInPlace(
  "mine mines exactly that many blocks, saves them and leaves nothing in the home folder",
  async ({ dir, start, stateText, height }) => {
    vi.stubEnv("HOME", dir)
    const chain = await start()
    vi.unstubAllEnvs()
    await chain.mine(1_203)
    expect(existsSync(join(dir, ".foundry", "anvil"))).toBe(false)
    expect(await height()).toBe(1_203)
    expect(JSON.parse(stateText()).best_block_number).toBe(1_203)
  },
)

testInPlace(
  "killed at any moment, the program leaves no process, and the next start has all that was saved",
  async ({ start, program, nothingLeft, receipt }) => {
    const saved: string[] = []
    // The moment of the kill is what this test varies; the last is after something was saved, on any machine.
    for (const delayMs of [0, 1, 5, 10, 20, 40, 60, 80, 120, 200, 400, undefined]) {
      const { child, heard } = program(sendsAndSaves)
      await eventually(() => heard.includes("begins"))
      if (delayMs === undefined) await eventually(() => words(heard, "saved").length > 0)
      else await sleep(delayMs)
      await killed(child)
      await eventually(nothingLeft)
      saved.push(...words(heard, "saved"))
      expect(words(heard, "error")).toEqual([])
    }
    await start()
    expect(saved.length).toBeGreaterThan(0)
    for (const hash of saved) expect(await receipt(hash)).not.toBeNull()
  },
)

testInPlace(
  "while something waits there is a block a second, and an error in the question stops nothing",
  async ({ logged, start, height }) => {
    let asked = 0
    const began = Date.now()
    await start({
      busy: async () => {
        asked += 1
        if (asked === 1) throw new Error("the database is away")
        return true
      },
    })
    await eventually(async () => (await height()) >= 3)
    expect(Date.now() - began).toBeGreaterThan(3_500) // the first second gave none
    expect(logged.filter(line => line.level === "error")).toHaveLength(1)
  },
)

testInPlace("a busy port is reported with its number and the setting", async ({ port, start }) => {
  const server = await listenOn(port)
  await expect(start()).rejects.toMatchObject({
    code: "PORT_BUSY",
    message: expect.stringMatching(new RegExp(`Port ${port} .*RPC_PORT=${port + 1}`)),
  })
  server.close()
  await once(server, "close")
})

testInPlace("a start waits for an orphan that has not ended yet", async ({ start, program }) => {
  const { child, heard } = program("")
  await eventually(() => heard.length === 2)
  const anvil = Number(words(heard, "anvil")[0])
  process.kill(anvil, "SIGSTOP") // it cannot answer the signal to end, so the keeper has to kill it
  await killed(child)
  // Not on the same port: what matters is that nobody writes to the folder any more.
  await start({ port: await freePort() })
  expect(await running(anvil)).toBe(false)
})

testInPlace("the keeper's death is reported and ends anvil", async ({ dir, start }) => {
  const chain = await start()
  process.kill(Number(readFileSync(join(dir, "chain.pid"), "utf8")), "SIGKILL")
  expect(await chain.exited).toEqual({ code: null, signal: "SIGKILL" })
  await eventually(async () => !(await running(chain.pid)))
})

testInPlace(
  "a restart keeps blocks, receipts, logs and balances, and the genesis block",
  async ({ start, nothingLeft, rpc, block, height, receipt, send }) => {
    const first = await start()
    const payment = await send()
    const logging = await send({ data: LOGGING_CODE })
    await first.mine(5)
    const before = { genesis: await block("0x0"), payment: await receipt(payment), head: await height() }
    await first.stop()
    expect(await nothingLeft()).toBe(true)

    await start()
    expect(await block("0x0")).toEqual(before.genesis)
    expect(await receipt(payment)).toEqual(before.payment)
    expect((await receipt(logging))?.logs).toHaveLength(1)
    expect(await rpc("eth_getTransactionByHash", payment)).toMatchObject({ hash: payment, blockNumber: "0x1" })
    expect(await rpc<unknown[]>("eth_getLogs", { fromBlock: "0x0", toBlock: "latest" })).toHaveLength(1)
    expect(await height()).toBeGreaterThanOrEqual(before.head)
    const [, to] = await rpc<string[]>("eth_accounts")
    for (const tag of ["latest", "safe", "finalized"])
      expect(BigInt(await rpc("eth_getBalance", to, tag))).toBe(10_000n * 10n ** 18n + 1n)
  },
)

testInPlace(
  "finalized is eight blocks behind the head, more than the sandbox's confirmations",
  async ({ start, block, height }) => {
    const chain = await start()
    await chain.mine(10)
    expect(Number((await block("finalized")).number)).toBe((await height()) - 8)
  },
)

testInPlace(
  "a save holds what was mined before it was called, also while another runs",
  async ({ dir, start, stateText, send }) => {
    const chain = await start()
    for (let i = 0; i < 10; i++) {
      const running = chain.save()
      const hash = await send()
      await Promise.all([chain.save(), chain.save()])
      expect(stateText()).toContain(hash)
      await running
    }
    // The keeper saves by itself too, and its file may not be renamed yet.
    await expect.poll(() => readdirSync(dir).filter(name => name.startsWith("."))).toEqual([])
  },
)

testInPlace(
  "blocks with transactions are saved without being asked, and so is a reorganisation",
  async ({ start, stateText, rpc, receipt, send }) => {
    await start()
    const hash = await send()
    await eventually(() => stateText().includes(hash))
    const included = await receipt(hash)
    await rpc("anvil_reorg", 1, [])
    expect(await receipt(hash)).toBeNull()
    await eventually(() => !stateText().includes(included?.blockHash ?? "") && !stateText().includes(hash))
  },
)

testInPlace("anvil's own death is reported, and what was saved is there again", async ({ start, receipt, send }) => {
  const chain = await start()
  const hash = await send()
  await chain.save()
  process.kill(chain.pid, "SIGKILL")
  expect(await chain.exited).toEqual({ code: null, signal: "SIGKILL" })
  await chain.stop()
  await start()
  expect(await receipt(hash)).not.toBeNull()
})

testInPlace("a stop is not reported as a death, and can be requested twice", async ({ start }) => {
  const chain = await start()
  let reported = false
  void chain.exited.then(() => {
    reported = true
  })
  await Promise.all([chain.stop(), chain.stop()])
  await chain.stop()
  expect(await running(chain.pid)).toBe(false)
  expect(reported).toBe(false)
})

testInPlace(
  "killed together with anvil, and started again at once, nothing saved is lost",
  async ({ start, program, stateText, receipt }) => {
    const saved: string[] = []
    for (let round = 1; round <= 4; round++) {
      const { child, heard } = program(sendsAndSaves)
      await eventually(() => words(heard, "saved").length >= round)
      process.kill(Number(words(heard, "anvil")[0]), "SIGKILL")
      await killed(child)
      saved.push(...words(heard, "saved"))
      JSON.parse(stateText())
    }
    await start()
    for (const hash of saved) expect(await receipt(hash)).not.toBeNull()
  },
)

testInPlace(
  "empty blocks lost in a kill are mined again: the head and its time never go back",
  async ({ dir, start, program, stateText, height, time }) => {
    const { child, heard } = program(`
    await rpc("evm_increaseTime", 5000)
    for (let i = 0; i < 20; i++) await rpc("evm_mine")
    say("mined " + Number(await rpc("eth_blockNumber")))`)
    await eventually(() => words(heard, "mined").length === 1)
    const head = Number(words(heard, "mined")[0])
    const known = () => JSON.parse(readFileSync(join(dir, "chain-head.json"), "utf8"))
    await eventually(() => known().number >= head)
    const { timestamp } = known()
    expect(JSON.parse(stateText()).best_block_number).toBeLessThan(head)
    process.kill(Number(words(heard, "anvil")[0]), "SIGKILL")
    await killed(child)
    await start()
    expect(await height()).toBeGreaterThanOrEqual(head)
    expect(await time()).toBeGreaterThanOrEqual(timestamp)
  },
)

testInPlace(
  "anvil's last dump is used where it is complete and not older",
  async ({ dir, logged, start, stateText, receipt, send }) => {
    const exit = join(dir, "chain-exit.json")
    const chain = await start()
    await chain.save()
    const old = stateText()
    const hash = await send()
    await chain.stop()
    const newer = stateText()

    for (const bad of [old, newer.slice(0, -100), ""]) {
      writeFileSync(exit, bad)
      const again = await start()
      expect(existsSync(exit)).toBe(false)
      expect(await receipt(hash)).not.toBeNull()
      await again.stop()
    }
    expect(logged.filter(line => line.level === "warn")).toHaveLength(2)

    rmSync(join(dir, "chain-head.json"))
    writeFileSync(join(dir, "chain-state.json"), old)
    writeFileSync(exit, newer)
    await start()
    expect(await receipt(hash)).not.toBeNull()
  },
)

testInPlace(
  "an unreadable state is reported, with anvil's message where it has one, and no process remains",
  async ({ dir, start, nothingLeft }) => {
    writeFileSync(join(dir, "chain-state.json"), "{}")
    await expect(start()).rejects.toThrow(/did not start: .*(missing field|load)/s)
    expect(await nothingLeft()).toBe(true)
    rmSync(join(dir, "chain-state.json"))
    writeFileSync(join(dir, "chain-head.json"), "{")
    await expect(start()).rejects.toThrow(/did not start/)
    expect(await nothingLeft()).toBe(true)
  },
)

testInPlace("advance moves the chain's clock, also over a restart", async ({ start, time, expectAhead }) => {
  const chain = await start()
  await expectAhead(MONTH_SECONDS, () => chain.advance(MONTH_SECONDS))
  const before = await time()
  await chain.stop()

  const again = await start({ timeOffsetSeconds: MONTH_SECONDS })
  expect(await time()).toBeGreaterThanOrEqual(before)
  await expectAhead(MONTH_SECONDS, () => again.mine(1))
  await expectAhead(MONTH_SECONDS + 60, () => again.advance(60))
})

testInPlace("with its offset lost, the chain's clock still does not go back", async ({ start, time }) => {
  const chain = await start()
  await chain.advance(MONTH_SECONDS)
  const before = await time()
  await chain.stop()
  const again = await start({ timeOffsetSeconds: 0 })
  expect(await time()).toBeGreaterThanOrEqual(before)
  await again.mine(1)
  expect(await time()).toBeGreaterThanOrEqual(before)
})
