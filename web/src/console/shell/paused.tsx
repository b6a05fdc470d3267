/** Why what is shown is not renewed: the browser is offline, or there were too many requests. What is shown stays. */
import { useEffect, useState, useSyncExternalStore } from "react"
import { pausedUntil } from "../api/client.ts"

const followLine = (listener: () => void) => {
  addEventListener("online", listener)
  addEventListener("offline", listener)
  return () => {
    removeEventListener("online", listener)
    removeEventListener("offline", listener)
  }
}

export function Paused() {
  const isOnline = useSyncExternalStore(followLine, () => navigator.onLine)
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
  if (!isOnline)
    return (
      <div className="strip wait" role="status">
        You are offline. The page stays as it is, and continues automatically once there is a connection.
      </div>
    )
  if (!isOn) return null
  return (
    <div className="strip wait" role="status">
      <span className="num">
        Too many requests this minute. The page continues in {Math.ceil((until - now) / 1_000)} s; what it shows stays.
      </span>
    </div>
  )
}
