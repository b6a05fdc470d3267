/** The route of a merchant's list, and of the file with all its rows. */
import { type Static, type TArray, type TObject, type TProperties, type TSchema, Type } from "typebox"
import { type Context, reading, type TxContext } from "../context.ts"
import { Page } from "./schemas.ts"
import { CsvAnswer, csvQuery, sendCsv } from "./send-csv.ts"
import { inData, type ListSource, sendList } from "./send-lists.ts"
import { callingMerchant, type Server } from "./server.ts"

/** The documentation of a route. */
interface Documented {
  operationId: string
  summary: string
  description?: string
}

interface List<F extends TProperties, P extends TProperties, T extends TSchema, R> extends Documented {
  path: string
  tags: string[]
  params?: TObject<P>
  /** The query's parameters in addition to those of every page. */
  filter?: F
  answer: TObject<{ data: TArray<T> }>
  /** Checks the filter, and throws if it is wrong; otherwise, returns the matching rows. */
  source(
    read: TxContext,
    merchantId: string,
    filter: Static<TObject<F>>,
    params: Static<TObject<P>>,
  ): ListSource<R> | Promise<ListSource<R>>
  show(read: TxContext, rows: R[]): Static<T>[] | Promise<Static<T>[]>
  /** The file at `PATH.csv`, if there is one. */
  csv?: Documented & {
    /** Checks the filter immediately, before the first line is read. */
    lines(read: TxContext, merchantId: string, filter: Static<TObject<F>>): AsyncGenerator<string | Buffer>
  }
}

/** Adds the routes of a list of the calling merchant: rows that match the filter, newest first. */
export function listRoute<F extends TProperties, P extends TProperties, T extends TSchema, R>(
  app: Server,
  ctx: Context,
  list: List<F, P, T, R>,
): void {
  const { path, tags, params, filter, answer, source, show, csv, ...documented } = list
  const querystring = Type.Object({ ...Page.properties, ...filter })
  const schema = { ...documented, tags, ...(params ? { params } : {}), querystring, response: { 200: answer } }
  app.get(path, { schema }, async (request, reply) => {
    const read = await reading(ctx)
    const merchantId = await callingMerchant(request)
    const { limit, offset, after, ...rest } = request.query as Page
    const rows = await source(read, merchantId, rest as never, request.params as never)
    return (await sendList(read, reply, { limit, offset, after }, rows, rows => show(read, rows), inData)) as never
  })
  if (csv) csvRoute(app, ctx, list, csv)
}

function csvRoute<F extends TProperties>(
  app: Server,
  ctx: Context,
  { path, tags, filter }: { path: string; tags: string[]; filter?: F },
  { lines, ...documented }: NonNullable<List<F, TProperties, TSchema, unknown>["csv"]>,
): void {
  const querystring = Type.Object({ ...filter, ...csvQuery })
  const schema = { ...documented, tags, querystring, response: CsvAnswer }
  app.get(`${path}.csv`, { schema }, async (request, reply) => {
    const read = await reading(ctx)
    const { bom, ...rest } = request.query as { bom?: "1" }
    const file = lines(read, await callingMerchant(request), rest as never)
    return await sendCsv(read, reply, `${path.split("/").at(-1)}.csv`, file, bom ? { bom } : {})
  })
}
