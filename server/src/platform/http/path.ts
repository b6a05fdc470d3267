/** The path of a request for limits, CORS and authentication. */

/** The pattern of the matching route; otherwise the path, decoded as the router does: `/p%61y` is `/pay`. */
export function pathOf(request: { url: string; routeOptions?: { url?: string | undefined } }): string {
  const route = request.routeOptions?.url
  // The route that matches every path answers preflights.
  if (route !== undefined && !route.includes("*")) return route
  const path = request.url.split("?", 1)[0] ?? ""
  try {
    return decodeURIComponent(path)
  } catch {
    return path
  }
}
