/**
 * Values that are usually available immediately. A promise for such a value would cost a turn of the microtask queue
 * each time, and a request needs several such values.
 */

/** Applies `use` to a value, immediately if it is not a promise. Rejects if the promise does. */
export const whenReady = <T, R>(value: T | Promise<T>, use: (value: T) => R | Promise<R>): R | Promise<R> =>
  value instanceof Promise ? value.then(use) : use(value)
