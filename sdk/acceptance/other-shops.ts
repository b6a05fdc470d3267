/** Shops on Hono and FastAPI, whose packages only the long tests install. They fail on demand, as those of `sdk/test/shops.ts`. */
import { spawn } from "node:child_process"
import { createServer } from "node:http"
import { createRequire } from "node:module"
import { join } from "node:path"
import { freePort, isTaken, plainEnv, root, until } from "../../server/test/e2e/program.ts"
import { startServer } from "../../server/test/local-server.ts"
import * as onHono from "../src/middleware/hono.ts"
import { CONTENT, listening, type Start } from "../test/shops.ts"

const PATIENCE_MS = 120_000

/** A shop on Hono, of the packages in `folder`. */
export const honoShop =
  (folder: string): Start =>
  async (sells, failure) => {
    const find = createRequire(join(folder, "x.js"))
    const { Hono } = find("hono")
    const { getRequestListener } = find("@hono/node-server")
    let runs = 0
    const app = new Hono()
    const guard = "charge" in sells ? onHono.charge(sells.charge as never) : onHono.paywall(sells.paywall)
    app.get("/weather", guard, (context: { json(body: object): Response }) => {
      runs++
      const now = failure()
      if (now === "throws") throw new Error("no weather")
      if (now === "answers 500" || now === "answers 404") return new Response("none", { status: Number(now.slice(8)) })
      if (now !== "breaks off") return context.json(CONTENT)
      const pull = (to: ReadableStreamDefaultController) => to.error(new Error("broken"))
      return new Response(new ReadableStream({ pull }))
    })
    return await listening(createServer(getRequestListener(app.fetch)), () => runs)
  }

const program = `
import json, os, urllib.request
import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from sluice.asgi import Charge

options = json.loads(os.environ["OPTIONS"])
app = FastAPI()

@app.get("/weather")
def weather():
    with urllib.request.urlopen(os.environ["CONTROL"]) as answer:
        failure = answer.read().decode()
    if failure == "throws":
        raise RuntimeError("no weather")
    if failure.startswith("answers "):
        return Response("none", status_code=int(failure[8:]))
    if failure == "breaks off":
        def broken():
            yield b'{"for'
            raise RuntimeError("broken")
        return StreamingResponse(broken())
    return {"forecast": "sunny"}

app.add_middleware(
    Charge,
    prices={"GET /weather": options["price"]},
    pay_to=options["payTo"],
    base_url=options["baseUrl"],
    api_key=options["apiKey"],
    settle=options.get("settle", "after"),
    timeout_seconds=20,
)
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
`

/** A shop on FastAPI, in a process of `python`; it has `charge` alone. */
export const fastapiShop =
  (python: string): Start =>
  async (sells, failure) => {
    if (!("charge" in sells)) throw new Error("Python has no paywall")
    let runs = 0
    const control = await startServer((_request, response) => {
      runs++
      response.end(failure() ?? "")
    })
    const port = await freePort()
    const env = {
      ...plainEnv(),
      CONTROL: control.url,
      OPTIONS: JSON.stringify(sells.charge),
      PORT: `${port}`,
      PYTHONPATH: join(root, "python"),
      PYTHONDONTWRITEBYTECODE: "1",
    }
    const child = spawn(python, ["-c", program], { env, stdio: ["ignore", "ignore", "pipe"] })
    let errors = ""
    child.stderr.on("data", chunk => (errors += chunk))
    await until("FastAPI listens", async () => child.exitCode !== null || (await isTaken(port)), PATIENCE_MS)
    if (child.exitCode !== null) throw new Error(`FastAPI ended: ${errors}`)
    return {
      url: `http://127.0.0.1:${port}/weather`,
      runs: () => runs,
      stop: () => {
        child.kill("SIGKILL")
        control.stop()
      },
    }
  }
