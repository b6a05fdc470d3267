/**
 * `/embed.js`, for merchants' sites: a click on a link with `data-sluice` opens its page in a dialog. Without this script, or where
 * the page may not be shown in a frame, the link leads to the page. At most 3 KB; a classic script, so it imports nothing.
 */
;(() => {
  const home = new URL((document.currentScript as HTMLScriptElement).src).origin
  /** A frame that has loaded, and has not answered by then, shows a refusal of the browser: the page is not allowed here. */
  const SILENT_MS = 6_000
  const close: Record<string, string> = {
    en: "Close",
    es: "Cerrar",
    pt: "Fechar",
    fr: "Fermer",
    de: "Schließen",
    zh: "关闭",
    ar: "إغلاق",
  }

  const sheet = new CSSStyleSheet()
  sheet.replaceSync(
    ".sluice{box-sizing:border-box;width:30rem;max-width:100vw;height:46rem;max-height:100dvh;padding:0;border:0;border-radius:1rem;overflow:hidden;background:Canvas;color-scheme:light dark}" +
      ".sluice::backdrop{background:#0008}" +
      ".sluice iframe{display:block;width:100%;height:100%;border:0;color-scheme:light dark}" +
      ".sluice button{position:absolute;top:0;inset-inline-end:.25rem;width:2.25rem;height:2.25rem;border:0;border-radius:50%;background:none;color:GrayText;font:1.5rem/1 sans-serif;cursor:pointer}" +
      "@media(max-width:30rem){.sluice{height:100dvh;border-radius:0}}",
  )
  document.adoptedStyleSheets.push(sheet)

  const show = (link: HTMLAnchorElement): void => {
    const dialog = document.createElement("dialog")
    const button = document.createElement("button")
    const frame = document.createElement("iframe")
    const notify = (type: string, detail: object) =>
      link.dispatchEvent(new CustomEvent(`sluice:${type}`, { bubbles: true, detail }))
    let paid: string | undefined
    let answered = false
    let silence = 0

    const listen = ({ source, origin, data }: MessageEvent): void => {
      if (source !== frame.contentWindow || origin !== home) return
      if (data.type === "sluice:ready") {
        answered = true
        clearTimeout(silence)
      }
      if (data.type === "sluice:close") dialog.close()
      if (data.type !== "sluice:paid" || paid !== undefined) return
      paid = data.id
      notify("paid", { id: paid })
    }
    addEventListener("message", listen)
    dialog.addEventListener("close", () => {
      clearTimeout(silence)
      removeEventListener("message", listen)
      dialog.remove()
      notify("close", { id: paid ?? null })
    })
    frame.addEventListener("load", () => {
      // It answers no site that is not allowed, and it may have gone on to its next page.
      frame.contentWindow?.postMessage({ type: "sluice:hello" }, home)
      // Not from the click on: where a page comes slowly, the visitor would lose the shop's page while reading this one.
      clearTimeout(silence)
      if (!answered) silence = setTimeout(() => location.assign(link.href), SILENT_MS) as unknown as number
    })

    dialog.className = "sluice"
    dialog.setAttribute("aria-label", link.textContent?.trim() || "Pay")
    button.type = "button"
    button.textContent = "×"
    button.setAttribute("aria-label", close[document.documentElement.lang.slice(0, 2)] ?? "Close")
    button.onclick = () => dialog.close()
    frame.allow = "clipboard-write"
    frame.title = dialog.ariaLabel ?? ""
    frame.src = link.href
    dialog.append(frame, button)
    document.body.append(dialog)
    dialog.showModal()
  }

  document.addEventListener("click", event => {
    if (event.defaultPrevented || event.button !== 0) return
    // A new tab or window, or a download, as the visitor asked.
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    const link = (event.target as Element).closest?.<HTMLAnchorElement>("a[data-sluice]")
    if (!link || link.origin !== home) return
    event.preventDefault()
    show(link)
  })
})()
