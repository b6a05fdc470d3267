/**
 * The connections to origins. Each merchant has its own connections, so its calls neither wait for another merchant's
 * calls to the same origin nor share a connection with them.
 */
// I/O: opens connections; needs no context, only a function that makes an agent.
import type { Agent } from "undici"

/**
 * The most agents: one for each call that a process forwards at a time. An agent with closed connections takes a few
 * kilobytes.
 */
const MOST = 500

export interface Agents {
  /** The agent of a merchant, for a request that starts immediately. */
  of(merchantId: string): Agent
  close(): Promise<void>
}

/**
 * Keeps the agents of the most recently called merchants. When an agent is evicted, its calls end and its connections
 * close.
 */
export function openAgents(open: () => Agent): Agents {
  /** Ordered by their last use. */
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
