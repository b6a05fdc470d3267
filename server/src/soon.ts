/** Values that are mostly there at once: a promise for one costs a turn of the microtask queue, which a request passes several times. */

/** `use` of a value, at once where it is there; rejects where the promise does. */
export const soon = <T, R>(value: T | Promise<T>, use: (value: T) => R | Promise<R>): R | Promise<R> =>
  value instanceof Promise ? value.then(use) : use(value)
