import pg from "pg"
import { expect, it } from "vitest"
import { addressesOf, admit, hostsOf } from "./hosts.ts"

it("reads the hosts of an address as libpq does", () => {
  expect(
    addressesOf("postgres://u:p%2C@one,two:5433,[::1]:5434/shop?target_session_attrs=read-write&sslmode=require"),
  ).toEqual([
    "postgres://u:p%2C@one/shop?sslmode=require",
    "postgres://u:p%2C@two:5433/shop?sslmode=require",
    "postgres://u:p%2C@[::1]:5434/shop?sslmode=require",
  ])
  expect(addressesOf("postgresql://one,two")).toEqual(["postgresql://one", "postgresql://two"])
})

it("leaves an address with one host as it is", () => {
  for (const url of [
    "postgres://u:a,b@one:5433/shop?x=1,2",
    "postgres:///shop?host=/run/one,/run/two",
    "socket:/run/a,b",
  ])
    expect(addressesOf(url)).toEqual([url])
})

it("leaves a host once, however many connections to it fail, and comes back to it", () => {
  const hosts = hostsOf("postgres://one,two/shop")
  for (let i = 0; i < 10; i++) hosts.leave("postgres://one/shop")
  expect(hosts.current()).toBe("postgres://two/shop")
  hosts.leave("postgres://two/shop")
  expect(hosts.current()).toBe("postgres://one/shop")
})

it("ends connections to a primary when another one is found, and refuses one that was promoted before", () => {
  const ended: string[] = []
  const found = (cluster: string, timeline: number) => {
    const client = new pg.Client()
    client.on("error", () => ended.push(`${cluster} ${timeline}`))
    admit("postgres://one,two/found", client, { cluster, timeline })
    return client
  }
  found("old", 1)
  found("old", 1).emit("end")
  expect(ended).toEqual([])
  found("old", 2)
  found("old", 2)
  expect(ended.splice(0)).toEqual(["old 1"])
  expect(() => found("old", 1)).toThrow(/until another host was promoted/)
  expect(ended).toEqual([])
  // After pg_upgrade, the timelines begin again.
  found("new", 1)
  expect(ended).toEqual(["old 2", "old 2"])
})
