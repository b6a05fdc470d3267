// The button in Chromium, on React's own packages: a checkout is paid in its dialog, and the page knows.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { rolldown } from "rolldown"
import { afterAll, beforeAll, expect, it } from "vitest"
import { newSandbox, root, type Sandbox } from "../server/test/e2e/program.ts"
import { startServer } from "../server/test/local-server.ts"
import { installPackages } from "../server/test/packages.ts"
import { newContext, openBrowser } from "../web/test/browser.ts"

let sandbox: Sandbox
let folder: string
beforeAll(async () => {
  folder = mkdtempSync(join(await installPackages("sdk/acceptance"), ".react-"))
  sandbox = await newSandbox({}, "migrated")
  await sandbox.start()
})
afterAll(async () => {
  await sandbox?.remove()
  rmSync(folder, { recursive: true, force: true })
})

const readme = readFileSync(join(root, "react/README.md"), "utf8")

/** A page that shows the button and its state, and the README's order. */
async function bundled(url: string, id: string): Promise<string> {
  const input = join(folder, "page.mjs")
  const [code = "", ...more] = [...readme.matchAll(/```jsx\n([\s\S]*?)```/g)].map(([, text = ""]) => text)
  expect(more).toEqual([])
  writeFileSync(join(folder, "order.jsx"), code)
  writeFileSync(
    input,
    `import { createElement } from "react"
import { createRoot } from "react-dom/client"
import { PayButton, useCheckout } from "@sluice/react"
import { Order } from "./order.jsx"
const heard = text => { document.title += text }
function Page() {
  const state = useCheckout(${JSON.stringify(id)})
  return createElement("main", null, createElement("p", { id: "state" }, state),
    createElement(Order, { checkout: ${JSON.stringify({ id, url })} }),
    createElement(PayButton, { href: ${JSON.stringify(url)}, onPaid: id => heard("paid:" + id), onClose: id => heard("closed:" + id) }))
}
createRoot(document.getElementById("root")).render(createElement(Page))`,
  )
  const modules = [join(root, "sdk/acceptance/node_modules")]
  const bundle = await rolldown({
    input,
    platform: "browser",
    transform: { define: { "process.env.NODE_ENV": '"production"' } },
    resolve: { alias: { "@sluice/react": join(root, "react/index.js") }, modules },
  })
  return (await bundle.generate({ format: "esm", codeSplitting: false })).output[0].code
}

it("opens the checkout in a dialog, and hears that it was paid", async () => {
  let script = ""
  const shop = await startServer((request, response) => {
    const isScript = request.url === "/page.js"
    response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html" })
    response.end(
      isScript
        ? script
        : '<!doctype html><html lang="en"><div id="root"></div><script type="module" src="/page.js"></script>',
    )
  })
  const [{ accessToken, apiKey }] = sandbox.file().merchants
  const auth = { authorization: `Bearer ${accessToken}`, "content-type": "application/json" }
  const body = JSON.stringify({ allowedOrigins: [shop.url] })
  expect((await fetch(`${sandbox.url}/api/console/settings`, { method: "PUT", headers: auth, body })).status).toBe(200)
  const { body: checkout } = await sandbox.call("/api/checkouts", { amount: "5" }, { "x-api-key": apiKey })
  script = await bundled(checkout.url, checkout.id)
  const browser = await openBrowser()
  const page = await (await newContext(browser)).newPage()
  await page.goto(shop.url)
  await page.locator("script[src$='/embed.js']").waitFor({ state: "attached" })
  expect(await page.locator("#state").textContent()).toBe("open")
  expect(await page.getByText("Pay 19.90 USDC").getAttribute("href")).toBe(checkout.url)
  await expect
    .poll(async () => {
      if ((await page.locator("dialog").count()) === 0)
        await page.getByText("Pay with USDC").click({ noWaitAfter: true })
      return await page.locator("dialog iframe").count()
    })
    .toBe(1)
  await page.frameLocator("dialog iframe").locator("main").first().waitFor()
  await sandbox.call("/sandbox/pay", { to: checkout.payTo, amount: "5" })
  await page.locator("#state", { hasText: "paid" }).waitFor()
  await page.getByText("Thank you").waitFor()
  expect(await page.getByText("Pay 19.90 USDC").count()).toBe(0)
  await page.keyboard.press("Escape")
  await expect.poll(() => page.title()).toBe(`paid:${checkout.id}closed:${checkout.id}`)
  await browser.close()
  shop.stop()
})
