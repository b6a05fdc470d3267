/** The path of a request as limits, CORS and authentication see it. */

/** The pattern of the matching route, or else the path, decoded as the router does: `/p%61y` is `/pay`. */
export function pathOf(request: { url: string; routeOptions?: { url?: string | undefined } }): string {
  const path = request.url.split("?", 1)[0] ?? ""
  try {
    const route = request.routeOptions?.url
    // Preflights are answered by a route for every path.
    return route === undefined || route.includes("*") ? decodeURIComponent(path) : route
  } catch {
    return path
  }
}
