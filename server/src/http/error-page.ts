/** How an error is shown to a person: whoever opens the server says so, as the pages are a feature of their own. */
import type { FastifyReply, FastifyRequest } from "fastify"
import type { ErrorCode } from "../errors.ts"

/** The body of an error as a browser gets it, with its headers set; undefined where the caller gets the error as JSON. */
export type ErrorPage = (request: FastifyRequest, reply: FastifyReply, code: ErrorCode) => string | Buffer | undefined
