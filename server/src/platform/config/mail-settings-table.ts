/** Declares the settings of mail. */
import type { Setting } from "./setting.ts"

/** The address of a mail server. */
function smtpUrl(value: string): string {
  const fault = "must be smtp://HOST:PORT or smtps://HOST:PORT, with USER:PASSWORD@ if the server requires a login"
  if (!URL.canParse(value)) throw new Error(fault)
  const { protocol, hostname, pathname } = new URL(value)
  if (!["smtp:", "smtps:"].includes(protocol) || hostname === "" || !["", "/"].includes(pathname))
    throw new Error(fault)
  return value
}

/** One plain e-mail address. */
function mailAddress(value: string): string {
  if (!/^[^\s@<>,;:"()\\]{1,64}@[A-Za-z0-9.-]{1,190}$/.test(value))
    throw new Error("must be one plain e-mail address, such as payments@shop.example")
  return value
}

export const mailSettings = {
  SMTP_URL: {
    meaning:
      "the mail server that sends notices to merchants' teams: smtp://HOST:PORT (uses TLS if the server offers it) or smtps://HOST:PORT, with USER:PASSWORD@ if the server requires a login",
    otherwise: "no mail is sent",
    parse: smtpUrl,
  },
  MAIL_FROM: {
    meaning: "the sender's address for all mail; required with SMTP_URL",
    otherwise: "none",
    parse: mailAddress,
  },
  MAIL_ALARMS: {
    meaning: "the operator's address, to which the service mails each new alarm; requires SMTP_URL",
    otherwise: "alarms are not mailed",
    parse: mailAddress,
  },
} satisfies Record<string, Setting<string>>
