import { expect, it } from "vitest"
import { parseRedisAddress } from "./redis-address.ts"

it("reads a server with its login and database", () => {
  expect(parseRedisAddress("rediss://user:p%40ss@redis.example:6380/2")).toEqual({
    kind: "server",
    isTls: true,
    login: { username: "user", password: "p@ss" },
    nodes: [{ host: "redis.example", port: 6380 }],
    database: 2,
    primaryName: "",
    sentinelLogin: {},
  })
})

it("reads sentinels, the name of what they watch, and how to log in at both", () => {
  expect(
    parseRedisAddress("redis+sentinel://:one@a,b:80,[::1]:26380/shop/3?sentinelUsername=u&sentinelPassword=two"),
  ).toEqual({
    kind: "sentinel",
    isTls: false,
    login: { password: "one" },
    nodes: [
      { host: "a", port: 26379 },
      { host: "b", port: 80 },
      { host: "::1", port: 26380 },
    ],
    database: 3,
    primaryName: "shop",
    sentinelLogin: { username: "u", password: "two" },
  })
})

it("reads nodes of a cluster", () => {
  expect(parseRedisAddress("rediss+cluster://a:7000,b/")).toMatchObject({
    kind: "cluster",
    isTls: true,
    nodes: [
      { host: "a", port: 7000 },
      { host: "b", port: 6379 },
    ],
    database: 0,
  })
})
