/** Which names of this machine a request may use as its Host. Pure. */

/**
 * Whether a Host header names this machine by a name that always means this machine. Any other name can belong to
 * another site: after a browser has loaded a page from that site, the site's owner can point the name here. The browser
 * then takes this service for that site (DNS rebinding).
 */
export const isLoopbackHost = (host: string | undefined): boolean =>
  /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i.test(host ?? "")
