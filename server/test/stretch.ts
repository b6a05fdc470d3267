/** Measures how long this thread works without giving others a turn, in CPU time: other programs can't make it longer. */

/**
 * Runs `work`, and returns the longest stretch of CPU time between two turns of the event loop, and the CPU time in all;
 * in milliseconds.
 */
export async function stretchOf(work: () => Promise<unknown>): Promise<{ longestMs: number; cpuMs: number }> {
  const usedMs = () => {
    const { user, system } = process.threadCpuUsage()
    return (user + system) / 1_000
  }
  const startMs = usedMs()
  let longestMs = 0
  let lastMs = startMs
  const look = () => {
    const nowMs = usedMs()
    longestMs = Math.max(longestMs, nowMs - lastMs)
    lastMs = nowMs
  }
  const timer = setInterval(look, 1)
  try {
    await work()
  } finally {
    clearInterval(timer)
  }
  look()
  return { longestMs, cpuMs: usedMs() - startMs }
}
