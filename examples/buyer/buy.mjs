// An agent that buys: what answers 402 by its URL, and a checkout, payment link or paywall by its page's address.
import { openBuyer } from "@sluice/sdk/buyer"
import { privateKeyToAccount } from "viem/accounts"

const { BUYER_KEY, TOKEN, RESOURCE, PAGE } = process.env
const buyer = openBuyer({
  wallet: privateKeyToAccount(BUYER_KEY),
  maxPerPayment: "20.00",
  maxPerDay: "50.00",
  // The sandbox's test token; without this line it spends USDC on Base and Base Sepolia.
  tokens: [{ network: "eip155:84532", address: TOKEN, decimals: 6 }],
})

const response = await buyer.fetch(RESOURCE)
console.log(response.status, await response.text())

const checkout = await buyer.pay(PAGE)
console.log(checkout.status)
