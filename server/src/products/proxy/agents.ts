/**
 * The connections to origins. Each merchant has its own, so that its calls neither wait for those of another merchant
 * to the same origin, nor follow them on a connection.
 */
// I/O: opens connections; needs no context, only what makes an agent.
import type { Agent } from "undici"

/**
 * The most agents, one for each call that a process forwards at a time. One whose connections are closed holds a few
 * kilobytes.
 */
const MOST = 500

export interface Agents {
  /** The agent of a merchant, for a request that begins at once. */
  of(merchantId: string): Agent
  close(): Promise<void>
}

/** Keeps the agents of the merchants that were called last. Another one ends its calls and closes its connections. */
export function openAgents(open: () => Agent): Agents {
  /** In the order in which they were last used. */
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
