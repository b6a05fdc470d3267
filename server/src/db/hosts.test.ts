import { expect, it } from "vitest"
import { addressesOf, hostsOf } from "./hosts.ts"

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
