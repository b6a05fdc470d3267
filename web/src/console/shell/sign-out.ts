/** Ends the session of this browser, and shows the sign-in. */
import { write } from "../api/client.ts"

export async function signOut(): Promise<void> {
  await write("DELETE", "/api/console/session").catch(() => undefined)
  location.assign("/console")
}
