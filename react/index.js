/** `<PayButton href>` and `useCheckout(id)`, over `/embed.js` of the service: a payment in a dialog of the page. */
import { createElement, useEffect, useRef, useState } from "react"

/** Loads the service's script, once for each service. Without it the link opens the page itself. */
function load(href) {
  const { origin } = new URL(href)
  const src = `${origin}/embed.js`
  if (document.querySelector(`script[src="${src}"]`)) return
  const script = document.createElement("script")
  script.src = src
  script.async = true
  document.head.append(script)
}

/** A link to a page for payers, which opens in a dialog. `onPaid` and `onClose` get the id of what was paid; deliver nothing by them. */
export function PayButton({ href, onPaid, onClose, children = "Pay with USDC", ...rest }) {
  const link = useRef(null)
  const handlers = useRef({})
  handlers.current = { paid: onPaid, close: onClose }
  useEffect(() => {
    const { current } = link
    load(href)
    const hear = name => {
      const listener = ({ detail }) => handlers.current[name]?.(detail.id)
      current.addEventListener(`sluice:${name}`, listener)
      return () => current.removeEventListener(`sluice:${name}`, listener)
    }
    const ends = [hear("paid"), hear("close")]
    return () => {
      for (const end of ends) end()
    }
  }, [href])
  return createElement("a", { ...rest, href, ref: link, "data-sluice": "" }, children)
}

/** Whether a checkout or paywall was paid in a dialog of this page: "open" or "paid". Your server knows it for certain. */
export function useCheckout(id) {
  const [paid, setPaid] = useState()
  useEffect(() => {
    const listener = ({ detail }) => detail.id === id && setPaid(id)
    document.addEventListener("sluice:paid", listener)
    return () => document.removeEventListener("sluice:paid", listener)
  }, [id])
  return paid === id && id !== undefined ? "paid" : "open"
}
