import { describe, expect, it } from "vitest"
import { noLimits, startService } from "../../../test/service.ts"
import { addressGroup } from "./buckets.ts"

describe("addressGroup", () => {
  it.each([
    ["192.0.2.7", "192.0.2.7"],
    ["::ffff:192.0.2.7", "192.0.2.7"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2"],
    ["2001:0db8:0001:0002::1", "2001:db8:1:2"],
    ["2001:db8::1", "2001:db8:0:0"],
    ["::1", "0:0:0:0"],
    ["fe80::1%eth0", "fe80:0:0:0"],
    ["::ffff:c000:207", "192.0.2.7"],
    ["2001:DB8::A", "2001:db8:0:0"],
    ["192.0.2.7:4711", "192.0.2.7"],
    ["[2001:db8::1]:4711", "2001:db8:0:0"],
    ["unknown", "nowhere"],
    ["", "nowhere"],
    [undefined, "nowhere"],
  ])("%s is counted as %s", (ip, group) => {
    expect(addressGroup(ip)).toBe(group)
  })
})

describe("a limit", () => {
  it("is not got around by another spelling of the path, nor by another address of one network", async () => {
    const limits = { ...noLimits, paywallPay: 2 }
    const service = await startService({ settings: { limits } })
    try {
      const pay = (path: string, remoteAddress: string) => service.call("POST", path, {}, { remoteAddress })
      const statuses: number[] = []
      for (const [path, ip] of [
        ["/api/paywalls/x/pay", "2001:db8::1"],
        ["/api/paywalls/x/p%61y", "2001:db8::2"],
        ["/api/paywalls/y/%70ay", "2001:db8::3"],
        ["/api/paywalls/y/pay", "2001:db8:0:1::3"],
      ] as const)
        statuses.push((await pay(path, ip)).status)
      expect(statuses).toEqual([400, 400, 429, 400])
    } finally {
      await service.stop()
    }
  })
})
