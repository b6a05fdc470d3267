// Made from docs/openapi.json by `npm run types`; do not edit.
import type { Operation } from "./operation.ts"

/** The operations that an API key may call, by the names of their commands. */
export const operations: Record<string, Record<string, Operation>> = {
 "settings": {
  "get": {
   "call": [
    "settings",
    "get"
   ],
   "does": "The merchant's settings",
   "ids": []
  }
 },
 "api-keys": {
  "get-limits": {
   "call": [
    "apiKeys",
    "getLimits"
   ],
   "does": "How much all API keys together may send back per day",
   "ids": []
  }
 },
 "paywalls": {
  "create": {
   "call": [
    "paywalls",
    "create"
   ],
   "does": "Creates a paywall with its own receiving address",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "name": {
     "type": "text",
     "does": "Text that is not blank",
     "required": true
    },
    "price": {
     "type": "text",
     "does": "A JSON number or a decimal string in whole tokens, above 0 and at most 1,000,000",
     "required": true
    },
    "currency": {
     "type": "text",
     "does": "The symbol of the network's settlement token"
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "contentType": {
     "type": "text",
     "does": "A lower-case word: a letter, then up to 31 letters, digits, _ or -"
    },
    "contentData": {
     "type": "json",
     "does": "At most 64 KB as JSON",
     "nullable": true
    },
    "contentUrl": {
     "type": "text",
     "does": "An http(s) address",
     "nullable": true
    },
    "pricingModel": {
     "type": "text",
     "does": "A lower-case word: a letter, then up to 31 letters, digits, _ or -"
    },
    "slug": {
     "type": "text",
     "does": "3 to 64 lower-case letters, digits and hyphens",
     "nullable": true
    },
    "listed": {
     "type": "boolean",
     "does": "Whether /.well-known/x402 lists it for agents, by its slug"
    },
    "splitId": {
     "type": "text",
     "does": "The id of a split, spl_ and 24 characters",
     "nullable": true
    },
    "subscriptionProductId": {
     "type": "text",
     "does": "One of your products with a billingInterval, on the paywall's network",
     "nullable": true
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "accessDuration": {
     "type": "number",
     "does": "Seconds",
     "nullable": true
    }
   }
  },
  "list": {
   "call": [
    "paywalls",
    "list"
   ],
   "does": "All paywalls, including inactive ones",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "active": {
     "type": "boolean",
     "does": "true: only active objects"
    },
    "q": {
     "type": "text",
     "does": "An id, a slug, or the start of a name"
    }
   }
  },
  "get": {
   "call": [
    "paywalls",
    "get"
   ],
   "does": "One paywall with every field",
   "ids": [
    "id"
   ]
  },
  "update": {
   "call": [
    "paywalls",
    "update"
   ],
   "does": "Changes the given fields",
   "ids": [
    "id"
   ],
   "body": true,
   "fields": {
    "name": {
     "type": "text",
     "does": "Text that is not blank"
    },
    "price": {
     "type": "text",
     "does": "A JSON number or a decimal string in whole tokens, above 0 and at most 1,000,000"
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "contentData": {
     "type": "json",
     "does": "At most 64 KB as JSON",
     "nullable": true
    },
    "contentUrl": {
     "type": "text",
     "does": "An http(s) address",
     "nullable": true
    },
    "active": {
     "type": "boolean",
     "does": ""
    },
    "pricingModel": {
     "type": "text",
     "does": "A lower-case word: a letter, then up to 31 letters, digits, _ or -"
    },
    "slug": {
     "type": "text",
     "does": "3 to 64 lower-case letters, digits and hyphens",
     "nullable": true
    },
    "listed": {
     "type": "boolean",
     "does": "Whether /.well-known/x402 lists it for agents, by its slug"
    },
    "splitId": {
     "type": "text",
     "does": "The id of a split, spl_ and 24 characters",
     "nullable": true
    },
    "subscriptionProductId": {
     "type": "text",
     "does": "One of your products with a billingInterval, on the paywall's network",
     "nullable": true
    },
    "accessDuration": {
     "type": "number",
     "does": "Seconds",
     "nullable": true
    }
   }
  },
  "delete": {
   "call": [
    "paywalls",
    "delete"
   ],
   "does": "Deactivates a paywall",
   "ids": [
    "id"
   ]
  },
  "list-grants": {
   "call": [
    "paywalls",
    "listGrants"
   ],
   "does": "The access that a paywall has granted",
   "ids": [
    "id"
   ],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    }
   }
  },
  "revoke-grant": {
   "call": [
    "paywalls",
    "revokeGrant"
   ],
   "does": "Revokes a grant, removing exactly the time that it added",
   "ids": [
    "id",
    "grantId"
   ],
   "body": true,
   "fields": {
    "reason": {
     "type": "text",
     "does": "Stored with the grant"
    }
   }
  },
  "verify-access": {
   "call": [
    "paywalls",
    "verifyAccess"
   ],
   "does": "Whether an address has access now",
   "ids": [
    "id"
   ],
   "query": true,
   "fields": {
    "address": {
     "type": "text",
     "does": "The wallet to check",
     "required": true
    }
   }
  },
  "consume": {
   "call": [
    "paywalls",
    "consume"
   ],
   "does": "Uses up one paid call of an address",
   "ids": [
    "id"
   ],
   "body": true,
   "key": true,
   "fields": {
    "address": {
     "type": "text",
     "does": "The wallet that makes the call",
     "required": true
    }
   }
  }
 },
 "checkouts": {
  "create": {
   "call": [
    "checkouts",
    "create"
   ],
   "does": "Starts a checkout with its own receiving address",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "amount": {
     "type": "text",
     "does": "A JSON number or a decimal string in whole tokens, above 0 and at most 1,000,000"
    },
    "currency": {
     "type": "text",
     "does": "The symbol of the network's settlement token"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "description": {
     "type": "text",
     "does": "Shown to the payer"
    },
    "redirectUrl": {
     "type": "text",
     "does": "The page to which the payer is sent after confirmation"
    },
    "callbackUrl": {
     "type": "text",
     "does": "The URL that receives this session's events instead of the registered endpoints"
    },
    "slug": {
     "type": "text",
     "does": "One of the merchant's payment links"
    },
    "productId": {
     "type": "text",
     "does": "A product, which has a price"
    },
    "splitId": {
     "type": "text",
     "does": "The id of a split, spl_ and 24 characters",
     "nullable": true
    },
    "customerEmail": {
     "type": "text",
     "does": "An e-mail address"
    },
    "payerFields": {
     "type": "json",
     "does": "Fields to ask the payer for"
    },
    "payerInfo": {
     "type": "json",
     "does": "The old name of payerFields"
    },
    "metadata": {
     "type": "json",
     "does": "The merchant's own data"
    },
    "expiresIn": {
     "type": "number",
     "does": "Seconds to pay"
    },
    "capture": {
     "type": "text",
     "does": "direct: the merchant owns the money as soon as it is paid"
    },
    "captureWithin": {
     "type": "number",
     "does": "Escrow only: seconds after the checkout's end until the payer can withdraw money that is not captur…"
    },
    "refundWithin": {
     "type": "number",
     "does": "Escrow only: seconds after that in which captured money can be refunded"
    }
   }
  },
  "list": {
   "call": [
    "checkouts",
    "list"
   ],
   "does": "All checkouts, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "status": {
     "type": "text",
     "does": "Filter by status"
    },
    "exception": {
     "type": "text",
     "does": "Filter by exception"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "q": {
     "type": "text",
     "does": "An id (cs_, pay_), a transaction hash, the address of the payer or the receiving address, an e-mail…"
    },
    "productId": {
     "type": "text",
     "does": "The id of a product, prod_ and 24 characters"
    },
    "slug": {
     "type": "text",
     "does": "One of your payment links"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "capture": {
     "type": "text",
     "does": "How it is captured"
    },
    "customerEmail": {
     "type": "text",
     "does": "In any case"
    },
    "metadata": {
     "type": "json",
     "does": "Fields of the metadata, such as metadata[order]=1001"
    }
   }
  },
  "get": {
   "call": [
    "checkouts",
    "get"
   ],
   "does": "One checkout with every field",
   "ids": [
    "id"
   ]
  },
  "update": {
   "call": [
    "checkouts",
    "update"
   ],
   "does": "Changes the given fields",
   "ids": [
    "id"
   ],
   "body": true,
   "fields": {
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "redirectUrl": {
     "type": "text",
     "does": "An http(s) address",
     "nullable": true
    },
    "metadata": {
     "type": "json",
     "does": "The merchant's own data",
     "nullable": true
    }
   }
  },
  "close": {
   "call": [
    "checkouts",
    "close"
   ],
   "does": "Ends a checkout that has no payment in progress",
   "ids": [
    "id"
   ]
  },
  "export": {
   "call": [
    "consoleCheckouts",
    "export"
   ],
   "does": "All checkouts that match the filter, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "status": {
     "type": "text",
     "does": "Filter by status"
    },
    "exception": {
     "type": "text",
     "does": "Filter by exception"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "q": {
     "type": "text",
     "does": "An id (cs_, pay_), a transaction hash, the address of the payer or the receiving address, an e-mail…"
    },
    "productId": {
     "type": "text",
     "does": "The id of a product, prod_ and 24 characters"
    },
    "slug": {
     "type": "text",
     "does": "One of your payment links"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "capture": {
     "type": "text",
     "does": "How it is captured"
    },
    "customerEmail": {
     "type": "text",
     "does": "In any case"
    },
    "metadata": {
     "type": "json",
     "does": "Fields of the metadata, such as metadata[order]=1001"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  }
 },
 "products": {
  "create": {
   "call": [
    "products",
    "create"
   ],
   "does": "Creates a product with a price",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "name": {
     "type": "text",
     "does": "Shown to payers, unless the checkout has a description",
     "required": true
    },
    "price": {
     "type": "text",
     "does": "A JSON number or a decimal string in whole tokens, above 0 and at most 1,000,000",
     "required": true
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "currency": {
     "type": "text",
     "does": "The symbol of the network's settlement token"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "splitId": {
     "type": "text",
     "does": "The id of a split, spl_ and 24 characters",
     "nullable": true
    },
    "billingInterval": {
     "type": "text",
     "does": "Makes it a subscription, billed again after each interval"
    },
    "billingCount": {
     "type": "number",
     "does": "How many intervals a period has"
    },
    "trialDays": {
     "type": "number",
     "does": "Subscriptions only: free days added to the first period of each wallet's first subscription to the …"
    },
    "maxPeriods": {
     "type": "number",
     "does": "Subscriptions only: how many periods are billed",
     "nullable": true
    }
   }
  },
  "list": {
   "call": [
    "products",
    "list"
   ],
   "does": "All products, including inactive ones",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "active": {
     "type": "boolean",
     "does": "true: only active objects"
    },
    "q": {
     "type": "text",
     "does": "An id, a slug, or the start of a name"
    }
   }
  },
  "get": {
   "call": [
    "products",
    "get"
   ],
   "does": "One product",
   "ids": [
    "id"
   ]
  },
  "update": {
   "call": [
    "products",
    "update"
   ],
   "does": "Changes the given fields",
   "ids": [
    "id"
   ],
   "body": true,
   "fields": {
    "name": {
     "type": "text",
     "does": "Text that is not blank"
    },
    "price": {
     "type": "text",
     "does": "A JSON number or a decimal string in whole tokens, above 0 and at most 1,000,000"
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "active": {
     "type": "boolean",
     "does": ""
    },
    "splitId": {
     "type": "text",
     "does": "The id of a split, spl_ and 24 characters",
     "nullable": true
    },
    "billingInterval": {
     "type": "text",
     "does": "Unchanged: the length of a period can't be changed"
    },
    "billingCount": {
     "type": "number",
     "does": "Unchanged: the length of a period can't be changed"
    },
    "trialDays": {
     "type": "number",
     "does": "Subscriptions only: free days added to the first period of each wallet's first subscription to the …"
    },
    "maxPeriods": {
     "type": "number",
     "does": "Subscriptions only: how many periods are billed",
     "nullable": true
    }
   }
  },
  "delete": {
   "call": [
    "products",
    "delete"
   ],
   "does": "Deactivates a product",
   "ids": [
    "id"
   ]
  }
 },
 "links": {
  "create": {
   "call": [
    "paymentLinks",
    "create"
   ],
   "does": "Creates a payment link",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "slug": {
     "type": "text",
     "does": "3 to 64 lower-case letters, digits and hyphens"
    },
    "title": {
     "type": "text",
     "does": "Text that is not blank",
     "required": true
    },
    "amount": {
     "type": "text",
     "does": "Without it, and without a product, the payer chooses the amount"
    },
    "productId": {
     "type": "text",
     "does": "Sells this product at its price"
    },
    "currency": {
     "type": "text",
     "does": "The symbol of the network's settlement token"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "splitId": {
     "type": "text",
     "does": "The id of a split, spl_ and 24 characters",
     "nullable": true
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "redirectUrl": {
     "type": "text",
     "does": "An http(s) address",
     "nullable": true
    },
    "maxUses": {
     "type": "number",
     "does": "Null: no limit",
     "nullable": true
    },
    "expiresAt": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)",
     "nullable": true
    },
    "payerFields": {
     "type": "json",
     "does": "Fields to ask each payer for before the payment, such as name and shippingAddress"
    }
   }
  },
  "list": {
   "call": [
    "paymentLinks",
    "list"
   ],
   "does": "All payment links, including inactive ones",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "active": {
     "type": "boolean",
     "does": "true: only active objects"
    },
    "q": {
     "type": "text",
     "does": "An id, a slug, or the start of a name"
    }
   }
  },
  "get": {
   "call": [
    "paymentLinks",
    "get"
   ],
   "does": "One payment link",
   "ids": [
    "id"
   ]
  },
  "update": {
   "call": [
    "paymentLinks",
    "update"
   ],
   "does": "Changes the given fields",
   "ids": [
    "id"
   ],
   "body": true,
   "fields": {
    "title": {
     "type": "text",
     "does": "Text that is not blank"
    },
    "active": {
     "type": "boolean",
     "does": ""
    },
    "splitId": {
     "type": "text",
     "does": "The id of a split, spl_ and 24 characters",
     "nullable": true
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "redirectUrl": {
     "type": "text",
     "does": "An http(s) address",
     "nullable": true
    },
    "maxUses": {
     "type": "number",
     "does": "Null: no limit",
     "nullable": true
    },
    "expiresAt": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)",
     "nullable": true
    },
    "payerFields": {
     "type": "json",
     "does": "Fields to ask each payer for before the payment, such as name and shippingAddress"
    }
   }
  },
  "delete": {
   "call": [
    "paymentLinks",
    "delete"
   ],
   "does": "Deactivates a payment link",
   "ids": [
    "id"
   ]
  }
 },
 "subscriptions": {
  "list": {
   "call": [
    "subscriptions",
    "list"
   ],
   "does": "All subscriptions that have started, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "status": {
     "type": "text",
     "does": "Filter by status"
    },
    "productId": {
     "type": "text",
     "does": "Filter by product"
    },
    "q": {
     "type": "text",
     "does": "An id (sub_, inv_, cs_), the address of a payer, or an e-mail address"
    }
   }
  },
  "export": {
   "call": [
    "subscriptions",
    "export"
   ],
   "does": "All subscriptions that match the filter, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "status": {
     "type": "text",
     "does": "Filter by status"
    },
    "productId": {
     "type": "text",
     "does": "Filter by product"
    },
    "q": {
     "type": "text",
     "does": "An id (sub_, inv_, cs_), the address of a payer, or an e-mail address"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  },
  "get": {
   "call": [
    "subscriptions",
    "get"
   ],
   "does": "One subscription with its invoices",
   "ids": [
    "id"
   ]
  },
  "update": {
   "call": [
    "subscriptions",
    "update"
   ],
   "does": "Moves a subscription to another product, starting with its next invoice",
   "ids": [
    "id"
   ],
   "body": true,
   "fields": {
    "productId": {
     "type": "text",
     "does": "A product with billingInterval on the same network",
     "required": true
    }
   }
  },
  "pause": {
   "call": [
    "subscriptions",
    "pause"
   ],
   "does": "Pauses a subscription",
   "ids": [
    "id"
   ],
   "key": true
  },
  "resume": {
   "call": [
    "subscriptions",
    "resume"
   ],
   "does": "Resumes a paused subscription, or keeps a subscription that would end with its period",
   "ids": [
    "id"
   ],
   "key": true
  },
  "cancel": {
   "call": [
    "subscriptions",
    "cancel"
   ],
   "does": "Cancels a subscription, immediately or at the end of its period",
   "ids": [
    "id"
   ],
   "body": true,
   "key": true,
   "fields": {
    "at": {
     "type": "text",
     "does": "now ends access immediately",
     "required": true
    }
   }
  }
 },
 "invoices": {
  "list": {
   "call": [
    "invoices",
    "list"
   ],
   "does": "All invoices, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "status": {
     "type": "text",
     "does": "Filter by status"
    },
    "subscriptionId": {
     "type": "text",
     "does": "The id of a subscription, sub_ and 24 characters"
    }
   }
  },
  "export": {
   "call": [
    "invoices",
    "export"
   ],
   "does": "All invoices that match the filter, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "status": {
     "type": "text",
     "does": "Filter by status"
    },
    "subscriptionId": {
     "type": "text",
     "does": "The id of a subscription, sub_ and 24 characters"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  },
  "get": {
   "call": [
    "invoices",
    "get"
   ],
   "does": "One invoice",
   "ids": [
    "id"
   ]
  }
 },
 "transactions": {
  "list": {
   "call": [
    "transactions",
    "list"
   ],
   "does": "Incoming and outgoing money, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "type": {
     "type": "text",
     "does": "Incoming: payment, and agent (paid by an agent with x402, here or through the facilitator to anothe…"
    },
    "status": {
     "type": "text",
     "does": "For payments: granted, reversed, open (waiting for the merchant"
    },
    "exception": {
     "type": "text",
     "does": "Only payments that need, or needed, your decision for this reason"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "amount": {
     "type": "text",
     "does": "Only transactions, incoming or outgoing, of exactly this amount of the settlement token"
    },
    "productId": {
     "type": "text",
     "does": "The id of a product, prod_ and 24 characters"
    },
    "slug": {
     "type": "text",
     "does": "One of your payment links"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "capture": {
     "type": "text",
     "does": "How it is captured"
    },
    "customerEmail": {
     "type": "text",
     "does": "In any case"
    },
    "metadata": {
     "type": "json",
     "does": "Fields of the metadata, such as metadata[order]=1001"
    },
    "q": {
     "type": "text",
     "does": "An id (pay_, cs_, pw_, bdl_, po_, set_, re_), a transaction hash, or the address of a payer or reci…"
    }
   }
  },
  "export": {
   "call": [
    "transactions",
    "export"
   ],
   "does": "All transactions that match the filter, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "type": {
     "type": "text",
     "does": "Incoming: payment, and agent (paid by an agent with x402, here or through the facilitator to anothe…"
    },
    "status": {
     "type": "text",
     "does": "For payments: granted, reversed, open (waiting for the merchant"
    },
    "exception": {
     "type": "text",
     "does": "Only payments that need, or needed, your decision for this reason"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "amount": {
     "type": "text",
     "does": "Only transactions, incoming or outgoing, of exactly this amount of the settlement token"
    },
    "productId": {
     "type": "text",
     "does": "The id of a product, prod_ and 24 characters"
    },
    "slug": {
     "type": "text",
     "does": "One of your payment links"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "capture": {
     "type": "text",
     "does": "How it is captured"
    },
    "customerEmail": {
     "type": "text",
     "does": "In any case"
    },
    "metadata": {
     "type": "json",
     "does": "Fields of the metadata, such as metadata[order]=1001"
    },
    "q": {
     "type": "text",
     "does": "An id (pay_, cs_, pw_, bdl_, po_, set_, re_), a transaction hash, or the address of a payer or reci…"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  },
  "totals": {
   "call": [
    "transactions",
    "totals"
   ],
   "does": "How much the transactions that match the filter add up to",
   "ids": [],
   "query": true,
   "fields": {
    "type": {
     "type": "text",
     "does": "Incoming: payment, and agent (paid by an agent with x402, here or through the facilitator to anothe…"
    },
    "status": {
     "type": "text",
     "does": "For payments: granted, reversed, open (waiting for the merchant"
    },
    "exception": {
     "type": "text",
     "does": "Only payments that need, or needed, your decision for this reason"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "amount": {
     "type": "text",
     "does": "Only transactions, incoming or outgoing, of exactly this amount of the settlement token"
    },
    "productId": {
     "type": "text",
     "does": "The id of a product, prod_ and 24 characters"
    },
    "slug": {
     "type": "text",
     "does": "One of your payment links"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "capture": {
     "type": "text",
     "does": "How it is captured"
    },
    "customerEmail": {
     "type": "text",
     "does": "In any case"
    },
    "metadata": {
     "type": "json",
     "does": "Fields of the metadata, such as metadata[order]=1001"
    },
    "q": {
     "type": "text",
     "does": "An id (pay_, cs_, pw_, bdl_, po_, set_, re_), a transaction hash, or the address of a payer or reci…"
    }
   }
  }
 },
 "payments": {
  "list": {
   "call": [
    "payments",
    "list"
   ],
   "does": "Payments that need a decision or got one, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "exception": {
     "type": "text",
     "does": "Filter by exception"
    },
    "status": {
     "type": "text",
     "does": "Filter by status"
    }
   }
  },
  "accept": {
   "call": [
    "payments",
    "accept"
   ],
   "does": "Accepts an open payment, so that it counts as paid",
   "ids": [
    "id"
   ],
   "body": true,
   "key": true
  },
  "return": {
   "call": [
    "payments",
    "return"
   ],
   "does": "Sends an open payment back, once",
   "ids": [
    "id"
   ],
   "body": true,
   "key": true,
   "fields": {
    "address": {
     "type": "text",
     "does": "The address that receives the money"
    },
    "confirm": {
     "type": "boolean",
     "does": "Required to override the payer's return address"
    },
    "approval": {
     "type": "json",
     "does": ""
    }
   }
  },
  "return-many": {
   "call": [
    "payments",
    "returnMany"
   ],
   "does": "Sends up to 50 open payments back, each independently",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "returns": {
     "type": "json",
     "does": "",
     "required": true
    }
   }
  },
  "capture": {
   "call": [
    "payments",
    "capture"
   ],
   "does": "Captures all or part of the reserved money",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "sessionId": {
     "type": "text",
     "does": "A checkout session's id",
     "required": true
    },
    "amount": {
     "type": "text",
     "does": "The whole rest by default"
    }
   }
  },
  "void": {
   "call": [
    "payments",
    "void"
   ],
   "does": "Releases the rest of the reserved money to its payer",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "sessionId": {
     "type": "text",
     "does": "A checkout session's id",
     "required": true
    }
   }
  },
  "list-shares": {
   "call": [
    "payments",
    "listShares"
   ],
   "does": "The shares of a payment, in the order of its split",
   "ids": [
    "id"
   ]
  },
  "get": {
   "call": [
    "payments",
    "get"
   ],
   "does": "A payment with its transfers, address, payouts, events and timeline",
   "ids": [
    "id"
   ]
  }
 },
 "refunds": {
  "create": {
   "call": [
    "refunds",
    "create"
   ],
   "does": "Refunds a captured escrow payment, in full or in part",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "sessionId": {
     "type": "text",
     "does": "A checkout session's id",
     "required": true
    },
    "amount": {
     "type": "text",
     "does": "The whole rest if left out"
    },
    "reason": {
     "type": "text",
     "does": "Text that is not blank"
    }
   }
  },
  "list": {
   "call": [
    "refunds",
    "list"
   ],
   "does": "All refunds, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "sessionId": {
     "type": "text",
     "does": "Only refunds of this checkout"
    },
    "status": {
     "type": "text",
     "does": "Filter by status"
    }
   }
  },
  "get": {
   "call": [
    "refunds",
    "get"
   ],
   "does": "One refund",
   "ids": [
    "id"
   ]
  },
  "withdraw": {
   "call": [
    "refunds",
    "withdraw"
   ],
   "does": "Withdraws a refund that is not signed yet",
   "ids": [
    "id"
   ]
  }
 },
 "webhooks": {
  "create": {
   "call": [
    "webhooks",
    "create"
   ],
   "does": "Registers an endpoint, and shows its secret only once",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "url": {
     "type": "text",
     "does": "An https address that is publicly reachable",
     "required": true
    },
    "events": {
     "type": "json",
     "does": "The events to send",
     "required": true
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    }
   }
  },
  "list": {
   "call": [
    "webhooks",
    "list"
   ],
   "does": "All endpoints, including paused endpoints",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    }
   }
  },
  "get": {
   "call": [
    "webhooks",
    "get"
   ],
   "does": "One endpoint with every field except its secret",
   "ids": [
    "id"
   ]
  },
  "update": {
   "call": [
    "webhooks",
    "update"
   ],
   "does": "Changes the given fields",
   "ids": [
    "id"
   ],
   "body": true,
   "fields": {
    "url": {
     "type": "text",
     "does": "An https address that is publicly reachable"
    },
    "events": {
     "type": "json",
     "does": "The events to send"
    },
    "active": {
     "type": "boolean",
     "does": "false pauses the endpoint: events are stored as skipped deliveries"
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    }
   }
  },
  "delete": {
   "call": [
    "webhooks",
    "delete"
   ],
   "does": "Removes an endpoint, and notifies it with settings.webhook_changed",
   "ids": [
    "id"
   ]
  },
  "test": {
   "call": [
    "webhooks",
    "test"
   ],
   "does": "Sends a ping, or the example of another event, the same way as any event",
   "ids": [
    "id"
   ],
   "body": true,
   "key": true,
   "fields": {
    "event": {
     "type": "text",
     "does": "The event whose example is sent, as GET /api/console/event-types shows it"
    }
   }
  },
  "roll-secret": {
   "call": [
    "webhooks",
    "rollSecret"
   ],
   "does": "Creates a new secret and shows it only once",
   "ids": [
    "id"
   ],
   "key": true
  },
  "recover": {
   "call": [
    "webhooks",
    "recover"
   ],
   "does": "Resends every delivery that failed or was skipped since a given time",
   "ids": [
    "id"
   ],
   "body": true,
   "key": true,
   "fields": {
    "since": {
     "type": "text",
     "does": "A time in ISO 8601 such as 2026-01-31T12:00:00Z",
     "required": true
    }
   }
  },
  "list-deliveries": {
   "call": [
    "webhooks",
    "listDeliveries"
   ],
   "does": "The deliveries to one endpoint, sent and pending",
   "ids": [
    "id"
   ],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "status": {
     "type": "text",
     "does": "Filter by status"
    },
    "event": {
     "type": "text",
     "does": "Filter by event type"
    }
   }
  },
  "stats": {
   "call": [
    "webhooks",
    "stats"
   ],
   "does": "How many deliveries to an endpoint arrived, and how long its answers took",
   "ids": [
    "id"
   ],
   "query": true,
   "fields": {
    "by": {
     "type": "text",
     "does": "hour (the default) for the last 48 hours"
    }
   }
  }
 },
 "deliveries": {
  "list": {
   "call": [
    "deliveries",
    "list"
   ],
   "does": "The deliveries to every endpoint and callbackUrl, sent and pending",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "status": {
     "type": "text",
     "does": "Filter by status"
    },
    "event": {
     "type": "text",
     "does": "Filter by event type"
    },
    "eventId": {
     "type": "text",
     "does": "Filter by event"
    },
    "webhookId": {
     "type": "text",
     "does": "Filter by endpoint"
    },
    "sessionId": {
     "type": "text",
     "does": "Filter by the checkout or payment it is about"
    },
    "destination": {
     "type": "text",
     "does": "Only deliveries to registered endpoints, or only deliveries to callbackUrls"
    },
    "since": {
     "type": "text",
     "does": "Only deliveries created at this time or later, in ISO 8601"
    },
    "until": {
     "type": "text",
     "does": "Only deliveries created before this time, in ISO 8601"
    }
   }
  },
  "get": {
   "call": [
    "deliveries",
    "get"
   ],
   "does": "One delivery with every attempt",
   "ids": [
    "id"
   ]
  },
  "resend": {
   "call": [
    "deliveries",
    "resend"
   ],
   "does": "Resends a delivery now",
   "ids": [
    "id"
   ],
   "key": true
  }
 },
 "events": {
  "list-types": {
   "call": [
    "events",
    "listTypes"
   ],
   "does": "Every event: when and to whom it is sent, the JSON Schema of its body, and an example",
   "ids": []
  },
  "list": {
   "call": [
    "events",
    "list"
   ],
   "does": "Events, exactly as they are sent",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "type": {
     "type": "text",
     "does": "Filter by event type"
    },
    "since": {
     "type": "text",
     "does": "A time in ISO 8601 such as 2026-01-31T12:00:00Z"
    },
    "object": {
     "type": "text",
     "does": "The id of the checkout, payment or subscription that the events are about"
    }
   }
  },
  "get": {
   "call": [
    "events",
    "get"
   ],
   "does": "One event, exactly as it is sent",
   "ids": [
    "id"
   ]
  }
 },
 "listeners": {
  "create": {
   "call": [
    "listeners",
    "create"
   ],
   "does": "Creates an endpoint without a URL, and shows its secret only once",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "events": {
     "type": "json",
     "does": "The names of the events to deliver",
     "required": true
    },
    "callbacks": {
     "type": "boolean",
     "does": "Also delivers a copy of everything sent to a callbackUrl, which still gets the original"
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    }
   }
  },
  "list": {
   "call": [
    "listeners",
    "list"
   ],
   "does": "The listeners that have not ended",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    }
   }
  },
  "delete": {
   "call": [
    "listeners",
    "delete"
   ],
   "does": "Ends a listener",
   "ids": [
    "id"
   ]
  },
  "pull": {
   "call": [
    "listeners",
    "pull"
   ],
   "does": "Pulls the deliveries that are due, as a stream or a long poll",
   "ids": [
    "id"
   ],
   "query": true,
   "fields": {
    "wait": {
     "type": "number",
     "does": "Answers with JSON, after at most this many seconds if nothing is due earlier"
    }
   }
  },
  "report": {
   "call": [
    "listeners",
    "report"
   ],
   "does": "Reports what receivers answered to pulled deliveries",
   "ids": [
    "id"
   ],
   "body": true
  }
 },
 "splits": {
  "create": {
   "call": [
    "splits",
    "create"
   ],
   "does": "Creates a split: 2 to 50 recipients whose percentages total exactly 100",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "name": {
     "type": "text",
     "does": "Text that is not blank",
     "required": true
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "recipients": {
     "type": "json",
     "does": "2 to 50 recipients, no address twice",
     "required": true
    }
   }
  },
  "list": {
   "call": [
    "splits",
    "list"
   ],
   "does": "All splits, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    }
   }
  },
  "get": {
   "call": [
    "splits",
    "get"
   ],
   "does": "One split with every field",
   "ids": [
    "id"
   ]
  },
  "update": {
   "call": [
    "splits",
    "update"
   ],
   "does": "Changes the given fields",
   "ids": [
    "id"
   ],
   "body": true,
   "fields": {
    "name": {
     "type": "text",
     "does": "Text that is not blank"
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "recipients": {
     "type": "json",
     "does": "2 to 50 recipients, no address twice"
    }
   }
  },
  "delete": {
   "call": [
    "splits",
    "delete"
   ],
   "does": "Deletes a split permanently",
   "ids": [
    "id"
   ]
  }
 },
 "books": {
  "list": {
   "call": [
    "books",
    "list"
   ],
   "does": "Every transfer into and out of the receiving addresses, with its reason, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "deposit": {
     "type": "text",
     "does": "The address of one deposit, or of the escrow: the answer then includes the balance"
    },
    "paywallId": {
     "type": "text",
     "does": "A paywall's id"
    },
    "sessionId": {
     "type": "text",
     "does": "A checkout session's id"
    }
   }
  },
  "export": {
   "call": [
    "books",
    "export"
   ],
   "does": "All entries of the books that match the filter, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "deposit": {
     "type": "text",
     "does": "The address of one deposit, or of the escrow: the answer then includes the balance"
    },
    "paywallId": {
     "type": "text",
     "does": "A paywall's id"
    },
    "sessionId": {
     "type": "text",
     "does": "A checkout session's id"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  }
 },
 "reports": {
  "books": {
   "call": [
    "reports",
    "books"
   ],
   "does": "Every transfer with its reason and value, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  },
  "payouts": {
   "call": [
    "reports",
    "payouts"
   ],
   "does": "Every payout with the payments inside it, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  },
  "balance": {
   "call": [
    "reports",
    "balance"
   ],
   "does": "Opening and closing balance, and what came in and went out, by network and token, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  },
  "tax": {
   "call": [
    "reports",
    "tax"
   ],
   "does": "What was received and given back by month, with its value, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "tz": {
     "type": "text",
     "does": "A time zone of the IANA database, such as Europe/Berlin"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  }
 },
 "receipts": {
  "list": {
   "call": [
    "receipts",
    "list"
   ],
   "does": "Receipts of payments, refunds, captures, releases and reversals, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "type": {
     "type": "text",
     "does": "What it proves"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    }
   }
  },
  "export": {
   "call": [
    "receipts",
    "export"
   ],
   "does": "Receipts with their keys, in order, as a file that proves itself",
   "ids": [],
   "query": true,
   "fields": {
    "type": {
     "type": "text",
     "does": "What it proves"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    }
   }
  }
 },
 "overview": {
  "get": {
   "call": [
    "overview",
    "get"
   ],
   "does": "Figures by period, the figures of the time before, and what needs you",
   "ids": [],
   "query": true,
   "fields": {
    "from": {
     "type": "text",
     "does": "The answer starts with the period that contains it"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "interval": {
     "type": "text",
     "does": "The length of a period, by the clocks of tz"
    },
    "tz": {
     "type": "text",
     "does": "The name of a time zone, such as Asia/Kolkata"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    }
   }
  },
  "get-balances": {
   "call": [
    "overview",
    "getBalances"
   ],
   "does": "Balances at your receiving addresses and in the escrow, according to the books, by network and token",
   "ids": []
  }
 },
 "deposits": {
  "list": {
   "call": [
    "deposits",
    "list"
   ],
   "does": "The receiving addresses and their terms, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    }
   }
  },
  "export": {
   "call": [
    "deposits",
    "export"
   ],
   "does": "All receiving addresses and their terms, as CSV: everything needed to recover their money without t…",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  }
 },
 "foreign-tokens": {
  "list": {
   "call": [
    "foreignTokens",
    "list"
   ],
   "does": "Tokens at your receiving addresses that you do not accept, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    }
   }
  }
 },
 "bundles": {
  "create": {
   "call": [
    "bundles",
    "create"
   ],
   "does": "Puts an API behind a price, route by route",
   "ids": [],
   "body": true,
   "key": true,
   "fields": {
    "name": {
     "type": "text",
     "does": "Text that is not blank",
     "required": true
    },
    "originUrl": {
     "type": "text",
     "does": "Where requests are sent: a publicly reachable https address, with the start of every path but no qu…",
     "required": true
    },
    "routes": {
     "type": "json",
     "does": "What can be called, and at what price",
     "required": true
    },
    "slug": {
     "type": "text",
     "does": "3 to 64 lower-case letters, digits and hyphens"
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "originHeaders": {
     "type": "json",
     "does": "Headers added to each request to the origin, such as its credential: at most 20"
    },
    "listed": {
     "type": "boolean",
     "does": "Whether /.well-known/x402 lists it"
    },
    "openapi": {
     "type": "json",
     "does": "An OpenAPI document for agents",
     "nullable": true
    },
    "openapiUrl": {
     "type": "text",
     "does": "An http(s) address",
     "nullable": true
    },
    "splitId": {
     "type": "text",
     "does": "The id of a split, spl_ and 24 characters",
     "nullable": true
    },
    "currency": {
     "type": "text",
     "does": "The symbol of the network's settlement token"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    }
   }
  },
  "list": {
   "call": [
    "bundles",
    "list"
   ],
   "does": "All bundles, including inactive ones",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "active": {
     "type": "boolean",
     "does": "true: only active objects"
    },
    "q": {
     "type": "text",
     "does": "An id, a slug, or the start of a name"
    }
   }
  },
  "get": {
   "call": [
    "bundles",
    "get"
   ],
   "does": "One bundle with its routes, and only the names of its secret headers",
   "ids": [
    "id"
   ]
  },
  "update": {
   "call": [
    "bundles",
    "update"
   ],
   "does": "Changes the given fields",
   "ids": [
    "id"
   ],
   "body": true,
   "fields": {
    "name": {
     "type": "text",
     "does": "Text that is not blank"
    },
    "originUrl": {
     "type": "text",
     "does": "Where requests are sent"
    },
    "originHeaders": {
     "type": "json",
     "does": "Headers to add or replace"
    },
    "routes": {
     "type": "json",
     "does": "All routes"
    },
    "slug": {
     "type": "text",
     "does": "3 to 64 lower-case letters, digits and hyphens"
    },
    "description": {
     "type": "text",
     "does": "",
     "nullable": true
    },
    "active": {
     "type": "boolean",
     "does": "false: calls are answered 404"
    },
    "listed": {
     "type": "boolean",
     "does": ""
    },
    "openapi": {
     "type": "json",
     "does": "An OpenAPI document for agents",
     "nullable": true
    },
    "openapiUrl": {
     "type": "text",
     "does": "An http(s) address",
     "nullable": true
    },
    "splitId": {
     "type": "text",
     "does": "The id of a split, spl_ and 24 characters",
     "nullable": true
    }
   }
  },
  "delete": {
   "call": [
    "bundles",
    "delete"
   ],
   "does": "Deactivates a bundle",
   "ids": [
    "id"
   ]
  },
  "list-failures": {
   "call": [
    "bundles",
    "listFailures"
   ],
   "does": "Paid calls that the origin failed, latest first",
   "ids": [
    "id"
   ],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    }
   }
  }
 },
 "facilitator": {
  "verify": {
   "call": [
    "facilitator",
    "verify"
   ],
   "does": "Whether a buyer's payment can be settled",
   "ids": [],
   "body": true,
   "fields": {
    "x402Version": {
     "type": "number",
     "does": "As in the payload"
    },
    "paymentPayload": {
     "type": "json",
     "does": "What the buyer sent, decoded",
     "required": true
    },
    "paymentRequirements": {
     "type": "json",
     "does": "The paid entry of accepts, in the payload's version",
     "required": true
    }
   }
  },
  "settle": {
   "call": [
    "facilitator",
    "settle"
   ],
   "does": "Settles a buyer's payment, once",
   "ids": [],
   "body": true,
   "fields": {
    "x402Version": {
     "type": "number",
     "does": "As in the payload"
    },
    "paymentPayload": {
     "type": "json",
     "does": "What the buyer sent, decoded",
     "required": true
    },
    "paymentRequirements": {
     "type": "json",
     "does": "The paid entry of accepts, in the payload's version",
     "required": true
    }
   }
  },
  "get-settlement": {
   "call": [
    "facilitator",
    "getSettlement"
   ],
   "does": "The state of a settlement that one of the merchant's servers requested",
   "ids": [
    "from",
    "nonce"
   ]
  }
 },
 "audit": {
  "list": {
   "call": [
    "audit",
    "list"
   ],
   "does": "Who changed what, when and from where, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "actor": {
     "type": "text",
     "does": "The id of an actor: 1 to 300 characters, neither the first nor the last a space"
    },
    "actorKind": {
     "type": "text",
     "does": "console: a console token"
    },
    "action": {
     "type": "text",
     "does": "The kind of object, and what happened to it"
    },
    "object": {
     "type": "text",
     "does": "The id of the changed object: 1 to 100 letters, digits and characters of ids"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    }
   }
  },
  "export": {
   "call": [
    "audit",
    "export"
   ],
   "does": "All entries that match the filter, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "actor": {
     "type": "text",
     "does": "The id of an actor: 1 to 300 characters, neither the first nor the last a space"
    },
    "actorKind": {
     "type": "text",
     "does": "console: a console token"
    },
    "action": {
     "type": "text",
     "does": "The kind of object, and what happened to it"
    },
    "object": {
     "type": "text",
     "does": "The id of the changed object: 1 to 100 letters, digits and characters of ids"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  }
 },
 "requests": {
  "list": {
   "call": [
    "requests",
    "list"
   ],
   "does": "The requests of your people and API keys in the last 30 days, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "status": {
     "type": "text",
     "does": "By the first digit of the answer's status"
    },
    "by": {
     "type": "text",
     "does": "Only requests with an API key (key), or only those of people, as in the console (person)"
    },
    "key": {
     "type": "text",
     "does": "Only requests of this API key"
    },
    "person": {
     "type": "text",
     "does": "Only requests of this person"
    },
    "route": {
     "type": "text",
     "does": "Only requests to this route"
    },
    "from": {
     "type": "text",
     "does": "Only requests answered at this time or later, in ISO 8601"
    },
    "to": {
     "type": "text",
     "does": "Only requests answered before this time, in ISO 8601"
    }
   }
  },
  "find": {
   "call": [
    "requests",
    "find"
   ],
   "does": "The requests with an X-Request-Id",
   "ids": [
    "id"
   ]
  }
 },
 "timeline": {
  "get": {
   "call": [
    "timeline",
    "get"
   ],
   "does": "What happened to any object, why it is in its state, and what you can do now",
   "ids": [
    "id"
   ]
  }
 },
 "payouts": {
  "list": {
   "call": [
    "payouts",
    "list"
   ],
   "does": "Money sent to your wallet, to recipients of splits and back to payers, newest first",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "kind": {
     "type": "text",
     "does": "sweep: to your payout address, from many payments"
    },
    "state": {
     "type": "text",
     "does": "Filter by state"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    }
   }
  },
  "export": {
   "call": [
    "payouts",
    "export"
   ],
   "does": "All payouts that match the filter, as CSV",
   "ids": [],
   "query": true,
   "csv": true,
   "fields": {
    "kind": {
     "type": "text",
     "does": "sweep: to your payout address, from many payments"
    },
    "state": {
     "type": "text",
     "does": "Filter by state"
    },
    "chain": {
     "type": "text",
     "does": "A network of this service"
    },
    "from": {
     "type": "text",
     "does": "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)"
    },
    "to": {
     "type": "text",
     "does": "Like from"
    },
    "bom": {
     "type": "text",
     "does": "Starts the file with a byte-order mark"
    }
   }
  },
  "get": {
   "call": [
    "payouts",
    "get"
   ],
   "does": "One payout with its gas, its attempts and the reason for its state",
   "ids": [
    "id"
   ]
  },
  "list-payments": {
   "call": [
    "payouts",
    "listPayments"
   ],
   "does": "The payments in a payout, and how much of each",
   "ids": [
    "id"
   ],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    }
   }
  }
 },
 "search": {
  "find": {
   "call": [
    "search",
    "find"
   ],
   "does": "Finds anything by its id, hash, address, e-mail address, slug, name, amount or metadata",
   "ids": [],
   "query": true,
   "fields": {
    "q": {
     "type": "text",
     "does": "An id, a transaction hash, an address, an e-mail address, a slug, the start of a name, an amount, a…",
     "required": true
    }
   }
  }
 },
 "payers": {
  "list": {
   "call": [
    "payers",
    "list"
   ],
   "does": "Payers and what they paid",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "limit": {
     "type": "number",
     "does": "The maximum number of results"
    },
    "after": {
     "type": "text",
     "does": "The next of the previous page"
    },
    "q": {
     "type": "text",
     "does": "An address, or an e-mail address"
    }
   }
  },
  "get": {
   "call": [
    "payers",
    "get"
   ],
   "does": "A payer by address or e-mail address: paid, refunded, subscriptions and access",
   "ids": [
    "payer"
   ]
  }
 },
 "health": {
  "get": {
   "call": [
    "health",
    "get"
   ],
   "does": "The state of each network, what is waiting, and what is wrong, as text",
   "ids": []
  }
 },
 "changes": {
  "list": {
   "call": [
    "changes",
    "list"
   ],
   "does": "Changes in your lists, in the order of commits",
   "ids": [],
   "query": true,
   "pages": true,
   "fields": {
    "after": {
     "type": "text",
     "does": "The id of the last change that you have, or next of the last answer"
    },
    "wait": {
     "type": "number",
     "does": "Seconds that the answer waits for the first change"
    }
   }
  }
 }
}
