/** The path of a request as limits, CORS and authentication see it. */

/** The pattern of the matching route, or else the path, decoded as the router does: `/p%61y` is `/pay`. */
export function pathOf(request: { url: string; routeOptions?: { url?: string | undefined } }): string {
  const route = request.routeOptions?.url
  // Preflights are answered by a route for every path.
  if (route !== undefined && !route.includes("*")) return route
  const path = request.url.split("?", 1)[0] ?? ""
  try {
    return decodeURIComponent(path)
  } catch {
    return path
  }
}
