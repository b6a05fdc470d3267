/** Reads lists page by page. */

/** The start of a page, and its number of rows. */
export interface PageQuery {
  /** The `next` of the previous page. */
  after?: string
  /** Rows, at most 100. */
  limit?: number
}

/**
 * A list: iterate over its rows, or read one page at a time. It sends no request before that. While a rate limit
 * refuses, the iteration waits.
 *
 * @example for await (const payment of sluice.transactions.list({ status: "granted" })) console.log(payment.id)
 */
export interface Pages<Row, Page> extends AsyncIterable<Row> {
  /** One page with the whole answer of the service, including `total` and `next`, which starts the next page. */
  page(query?: PageQuery): Promise<Page>
  /** The rows of all pages, as one array; throws a RangeError if there are more than `max`. */
  all(max: number): Promise<Row[]>
}

/** Creates a list from a function that reads one page, and the dotted path of its rows. */
export function pagesOf<Row, Page>(
  read: (query: PageQuery, isPatient: boolean) => Promise<Page>,
  rowsAt: string,
): Pages<Row, Page> {
  async function* rows(): AsyncGenerator<Row> {
    for (let after: string | undefined; ; ) {
      const page = await read(after === undefined ? {} : { after }, true)
      yield* at(page, rowsAt) as Row[]
      after = (page as { next?: string }).next
      if (after === undefined || after === null) return
    }
  }
  return {
    [Symbol.asyncIterator]: rows,
    page: async (query = {}) => await read(query, false),
    all: async max => {
      const found: Row[] = []
      for await (const row of rows()) {
        if (found.length === max) throw new RangeError(`there are more than ${max} rows`)
        found.push(row)
      }
      return found
    },
  }
}

/** The value at a dotted path of an answer. */
export const at = (answer: unknown, path: string): unknown =>
  path.split(".").reduce<unknown>((part, name) => (part as Record<string, unknown> | undefined)?.[name], answer)
