/** Which names of this machine a request may give as its Host. Pure. */

/**
 * Whether a Host header names this machine by a name that always means this machine. Any other name can be another
 * site's: its owner lets it point here after a browser has loaded a page from it, and the browser then takes this
 * service for that site (DNS rebinding).
 */
export const isLoopbackHost = (host: string | undefined): boolean =>
  /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i.test(host ?? "")
