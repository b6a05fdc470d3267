/**
 * `/embed.js`, for merchants' sites: a click on a link with `data-sluice` opens its page in a dialog. Without this
 * script the link opens the page itself. If the page can't be shown, the dialog contains that link. At most 3 KB; a
 * classic script, so it imports nothing.
 */
;(() => {
  const home = new URL((document.currentScript as HTMLScriptElement).src).origin
  /** If a page does not load within this time, the visitor is told. */
  const LOAD_MS = 12_000
  /** A loaded page answers within this time, unless its script failed. */
  const SILENT_MS = 8_000
  /** "Close", "This page can't be shown here.", "Open it in a new tab": in the language of the site. */
  const words: Record<string, string[]> = {
    en: ["Close", "This page can’t be shown here.", "Open it in a new tab"],
    es: ["Cerrar", "Esta página no se puede mostrar aquí.", "Abrirla en otra pestaña"],
    pt: ["Fechar", "Esta página não pode ser mostrada aqui.", "Abrir em outra aba"],
    fr: ["Fermer", "Cette page ne peut pas s’afficher ici.", "L’ouvrir dans un nouvel onglet"],
    de: ["Schließen", "Diese Seite kann hier nicht gezeigt werden.", "In neuem Tab öffnen"],
    zh: ["关闭", "无法在此显示该页面。", "在新标签页中打开"],
    ar: ["إغلاق", "لا يمكن عرض الصفحة هنا.", "فتح في علامة تبويب جديدة"],
  }
  const [closeWord = "", failedWords = "", openWords = ""] =
    words[document.documentElement.lang.slice(0, 2)] ?? words.en ?? []

  const sheet = new CSSStyleSheet()
  sheet.replaceSync(
    ".sluice{box-sizing:border-box;width:30rem;max-width:100vw;height:46rem;max-height:100dvh;padding:0;border:0;border-radius:1rem;overflow:hidden;flex-direction:column;background:Canvas;color-scheme:light dark}" +
      ".sluice[open]{display:flex}.sluice::backdrop{background:#0008}" +
      ".sluice iframe{flex:1;width:100%;border:0;color-scheme:light dark}" +
      ".sluice [hidden]{display:none}.sluice p{margin:auto;padding:1rem;text-align:center}" +
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
    const note = document.createElement("p")
    let paid: string | undefined
    let answered = false
    let silence: ReturnType<typeof setTimeout>
    /**
     * Offers a new tab, below a visible page or in place of a missing one. The shop's own page stays open, with its
     * cart.
     */
    const fail = (): void => {
      if (answered) return
      // A site can find out nothing else about a framed page: ours contains a frame, and a browser's error page
      // contains none.
      const isShown = frame.contentWindow?.length
      const away = document.createElement("a")
      away.href = link.href
      away.target = "_blank"
      away.textContent = openWords
      frame.hidden = !isShown
      note.replaceChildren(...(isShown ? [] : [failedWords, document.createElement("br")]), away)
      note.setAttribute("role", "alert")
      dialog.insertBefore(note, button)
    }
    const forget = (): void => {
      note.remove()
      frame.hidden = false
    }

    const listen = ({ source, origin, data }: MessageEvent): void => {
      if (source !== frame.contentWindow || origin !== home) return
      if (data.type === "sluice:ready") {
        answered = true
        forget()
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
      // A page does not answer a site that is not allowed. It may also have moved on to its next page.
      frame.contentWindow?.postMessage({ type: "sluice:hello" }, home)
      forget()
      clearTimeout(silence)
      // A refusal by the browser is never answered.
      if (frame.contentWindow?.length) silence = setTimeout(fail, SILENT_MS)
      else fail()
    })

    dialog.className = "sluice"
    dialog.setAttribute("aria-label", link.textContent?.trim() || "Pay")
    button.type = "button"
    button.textContent = "×"
    button.setAttribute("aria-label", closeWord)
    button.onclick = () => dialog.close()
    frame.allow = "clipboard-write"
    frame.title = dialog.ariaLabel ?? ""
    frame.src = link.href
    dialog.append(frame, button)
    document.body.append(dialog)
    dialog.showModal()
    silence = setTimeout(fail, LOAD_MS)
  }

  document.addEventListener("click", event => {
    if (event.defaultPrevented || event.button !== 0) return
    // The visitor asked for a new tab or window, or a download.
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    const link = (event.target as Element).closest?.<HTMLAnchorElement>("a[data-sluice]")
    if (!link || link.origin !== home) return
    event.preventDefault()
    show(link)
  })
})()
