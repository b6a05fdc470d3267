// The orders that were paid; a shop has a database for them. Routes share no module in Next, so they are kept in the process.
globalThis.paidOrders ??= new Set()

export const paid = globalThis.paidOrders
