/**
 * Shows an error to a person. The code that opens the server passes this function in, because pages are a feature of
 * their own.
 */
import type { FastifyReply, FastifyRequest } from "fastify"
import type { ErrorCode } from "../errors.ts"

/** Returns the body of an error for a browser and sets its headers; undefined if the caller gets the error as JSON. */
export type ErrorPage = (request: FastifyRequest, reply: FastifyReply, code: ErrorCode) => string | Buffer | undefined
