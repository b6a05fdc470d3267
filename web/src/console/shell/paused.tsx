/** After too many requests: how long the page waits. What it shows stays. */
import { useEffect, useState } from "react"
import { pausedUntil } from "../api/client.ts"

export function Paused() {
  const until = pausedUntil.use()
  const [now, setNow] = useState(Date.now())
  const isOn = until > now
  useEffect(() => {
    setNow(Date.now())
    if (until === 0) return
    const clock = setInterval(() => {
      setNow(Date.now())
      if (Date.now() > until) clearInterval(clock)
    }, 500)
    return () => clearInterval(clock)
  }, [until])
  if (!isOn) return null
  return (
    <div className="strip wait" role="status">
      <span className="num">
        Too many requests this minute. The page goes on in {Math.ceil((until - now) / 1_000)} s; what it shows stays.
      </span>
    </div>
  )
}
