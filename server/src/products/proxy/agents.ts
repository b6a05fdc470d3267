/**
 * The connections to origins. Each merchant has its own, so its calls neither wait for another merchant's to the same
 * origin, nor share a connection with them.
 */
// I/O: opens connections; needs no context, only what makes an agent.
import type { Agent } from "undici"

/**
 * The most agents, one per call that a process forwards at a time. An agent with closed connections holds a few
 * kilobytes.
 */
const MOST = 500

export interface Agents {
  /** The agent of a merchant, for a request that starts immediately. */
  of(merchantId: string): Agent
  close(): Promise<void>
}

/** Keeps the agents of the most recently called merchants. An evicted one ends its calls and closes its connections. */
export function openAgents(open: () => Agent): Agents {
  /** In order of last use. */
  const agents = new Map<string, Agent>()
  return {
    of: merchantId => {
      const agent = agents.get(merchantId) ?? open()
      agents.delete(merchantId)
      agents.set(merchantId, agent)
      const [oldest] = agents
      if (oldest && agents.size > MOST) {
        agents.delete(oldest[0])
        oldest[1].close().catch(() => undefined)
      }
      return agent
    },
    close: async () => {
      await Promise.all([...agents.values()].map(agent => agent.destroy()))
      agents.clear()
    },
  }
}
