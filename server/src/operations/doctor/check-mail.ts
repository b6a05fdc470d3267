/** Checks whether the mail server accepts the service's login. No mail is sent. */
// I/O: makes requests, including before the service starts, when there is no context.
import nodemailer from "nodemailer"
import type { Settings } from "../../platform/config/settings.ts"
import { type Finding, fine } from "./finding.ts"

const TIMEOUT_MS = 5_000
const part = "address"
const check = "mail"

/** Checks that the mail server of SMTP_URL, if one is set, answers and accepts the login. */
export async function checkMail({ mail }: Pick<Settings, "mail">): Promise<Finding[]> {
  if (mail === undefined) return []
  const timeouts = { connectionTimeout: TIMEOUT_MS, greetingTimeout: TIMEOUT_MS, socketTimeout: TIMEOUT_MS }
  const transport = nodemailer.createTransport({ url: mail.url, ...timeouts })
  try {
    await transport.verify()
    return [fine(part, check, "the mail server answers")]
  } catch (error) {
    const isLogin = (error as { code?: string }).code === "EAUTH"
    const message = isLogin ? "the mail server refuses the login" : "the mail server can't be reached"
    const todo = isLogin
      ? "Check the user and the password of SMTP_URL."
      : "Check SMTP_URL. Until it works, mails wait for at most 11 hours."
    return [{ part, check, level: "alarm", message, todo }]
  } finally {
    transport.close()
  }
}
