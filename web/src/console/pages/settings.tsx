/** The account: its name, its look on the payers' pages with a preview, and the sites that may frame them. */
import { Button, FileButton, NativeSelect, Textarea, TextInput } from "@mantine/core"
import { notifications } from "@mantine/notifications"
import { useState } from "react"
import { zonesToChoose } from "../api/days.ts"
import { useMembership } from "../api/me.ts"
import { settingsPath as path, useSettings } from "../api/settings.ts"
import type { Settings } from "../api/types.ts"
import { zoneTitle } from "../api/zone.ts"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { PartNotYet } from "../ui/not-yet.tsx"
import { PageHead } from "../ui/page.tsx"
import { SettingsTabs } from "../ui/settings-tabs.tsx"

const DEFAULT = "#1b4fd8"
const LOGO_BYTES = 65_536
/** No zone has this name. */
const BROWSER = "browser"

/** The zone to send; undefined where it stays. */
const zoneChanged = (present: string | null, chosen: string): string | null | undefined =>
  chosen === (present ?? BROWSER) ? undefined : chosen === BROWSER ? null : chosen

/**
 * That of each browser first, then the zones by continent. The city is the first word, so that typing it finds it. The
 * present zone is there even if this browser does not know it.
 */
function zoneChoices(present: string | null) {
  const zones = [...new Set([...zonesToChoose(), ...(present ? [present] : [])])].sort()
  const itemOf = (zone: string) => {
    const words = zoneTitle(zone).split("/")
    return { value: zone, label: words.length > 1 ? words.slice(1).reverse().join(", ") : zone }
  }
  const placeOf = (zone: string) => (zone.includes("/") ? zone.split("/")[0] : undefined)
  const places = new Set(zones.flatMap(zone => placeOf(zone) ?? []))
  return [
    { value: BROWSER, label: "Each person's browser" },
    ...zones.filter(zone => placeOf(zone) === undefined).map(itemOf),
    ...[...places].map(group => ({ group, items: zones.filter(zone => placeOf(zone) === group).map(itemOf) })),
  ]
}

export function AccountSettings() {
  const query = useSettings()
  const settings = query.data
  return (
    <>
      <PageHead title="Account and look" request={{ path }} of={query} />
      <SettingsTabs />
      {!settings && <PartNotYet query={query} />}
      {settings && <Forms settings={settings} />}
    </>
  )
}

function Forms({ settings }: { settings: Settings }) {
  const [look, setLook] = useState({ color: settings.branding.accentColor ?? DEFAULT, logo: settings.branding.logoUrl })
  return (
    <div className="two">
      <div className="stack">
        <section className="card pad stack" aria-label="Account">
          <h2>Account</h2>
          <RequestForm
            first={{
              name: settings.name,
              email: settings.email ?? "",
              currency: settings.currency,
              timeZone: settings.timeZone ?? BROWSER,
            }}
            right="settings"
            submit="Save"
            done="Saved"
            request={({ name, email, currency, timeZone }) => ({
              method: "PUT",
              path,
              body: bodyOf({
                name: name.trim(),
                email: given(email) ?? null,
                currency: currency.trim().toUpperCase(),
                timeZone: zoneChanged(settings.timeZone, timeZone),
              }),
            })}
            fields={form => (
              <>
                <TextInput label="Name" description="Payers see it" {...form.getInputProps("name")} />
                <div className="pair">
                  <TextInput
                    label="Contact e-mail"
                    description="For your records. Notices go to the members' own addresses"
                    {...form.getInputProps("email")}
                  />
                  <TextInput
                    label="Currency of values"
                    description="Such as USD or EUR; reports show it"
                    {...form.getInputProps("currency")}
                  />
                </div>
                <NativeSelect
                  label="Time zone"
                  description="All members then see times, and count the days of filters and figures, in this zone. CSV files stay in UTC"
                  data={zoneChoices(settings.timeZone)}
                  {...form.getInputProps("timeZone")}
                />
              </>
            )}
          />
        </section>
        <Look settings={settings} look={look} setLook={setLook} />
      </div>
      <Preview name={settings.name} {...look} />
      <section className="card pad stack" aria-label="Allowed sites">
        <div>
          <h2>Allowed sites</h2>
          <p className="quiet">Sites that may show your payers' pages in a frame. All others may only link to them.</p>
        </div>
        <RequestForm
          first={{ sites: settings.allowedOrigins.join("\n") }}
          right="settings"
          submit="Save"
          done="Saved"
          request={({ sites }) => ({
            method: "PUT",
            path,
            body: { allowedOrigins: sites.split(/[\s,]+/).filter(Boolean) },
          })}
          fields={form => (
            <Textarea
              label="Sites"
              description="One per line"
              placeholder="https://shop.example"
              rows={3}
              classNames={{ input: "mono" }}
              {...form.getInputProps("sites")}
            />
          )}
        />
      </section>
    </div>
  )
}

interface Shown {
  color: string
  logo: string | null
}

interface LookGiven {
  settings: Settings
  look: Shown
  setLook: (look: Shown) => void
}

/** The picture as a data: address; says why where it can't be used. */
async function pictureOf(file: File): Promise<string | undefined> {
  if (file.size > LOGO_BYTES) {
    notifications.show({ message: "The picture is larger than 64 KB. Make it smaller first.", color: "red" })
    return undefined
  }
  return await new Promise(resolve => {
    const reader = new FileReader()
    reader.onload = () => resolve(String(reader.result))
    reader.readAsDataURL(file)
  })
}

function Look({ settings, look, setLook }: LookGiven) {
  return (
    <section className="card pad stack" aria-label="Look">
      <div>
        <h2>Look of the payers' pages</h2>
        <p className="quiet">The preview shows it before it is saved.</p>
      </div>
      <RequestForm
        first={{ color: settings.branding.accentColor ?? "", logo: undefined as string | null | undefined }}
        right="settings"
        submit="Save the look"
        done="Payers see it from now on"
        request={({ color, logo }) => ({
          method: "PUT",
          path,
          body: { branding: bodyOf({ accentColor: given(color) ?? null, logo }) },
        })}
        fields={form => {
          const choose = (color: string) => {
            form.setFieldValue("color", color)
            if (/^#[0-9a-fA-F]{6}$/.test(color) || color === "") setLook({ ...look, color: color || DEFAULT })
          }
          return (
            <>
              <div className="row" style={{ alignItems: "flex-end" }}>
                <TextInput
                  label="Color of the main button"
                  placeholder={DEFAULT}
                  classNames={{ input: "mono" }}
                  {...form.getInputProps("color")}
                  onChange={event => choose(event.currentTarget.value)}
                />
                <input
                  type="color"
                  className="swatch"
                  aria-label="Choose the color"
                  value={look.color}
                  onChange={event => choose(event.currentTarget.value)}
                />
              </div>
              <div>
                <div className="legend">Logo</div>
                <div className="row">
                  <FileButton
                    accept="image/png,image/jpeg,image/webp"
                    onChange={async file => {
                      const logo = file ? await pictureOf(file) : undefined
                      if (logo === undefined) return
                      form.setFieldValue("logo", logo)
                      setLook({ ...look, logo })
                    }}
                  >
                    {props => (
                      <Button size="xs" {...props}>
                        {look.logo ? "Another picture" : "Choose a picture"}
                      </Button>
                    )}
                  </FileButton>
                  {look.logo && (
                    <Button
                      size="xs"
                      onClick={() => {
                        form.setFieldValue("logo", null)
                        setLook({ ...look, logo: null })
                      }}
                    >
                      No logo
                    </Button>
                  )}
                  <span className="quiet">PNG, JPEG or WebP, at most 64 KB</span>
                </div>
              </div>
            </>
          )
        }}
      />
    </section>
  )
}

/** Black or white, whichever reads better on a colour. */
const inkOn = (color: string): string => {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map(at => Number.parseInt(color.slice(at, at + 2), 16))
  return r * 0.299 + g * 0.587 + b * 0.114 > 150 ? "#000" : "#fff"
}

function Preview({ name, color, logo }: Shown & { name: string }) {
  const title = useMembership()?.name || name || "Your shop"
  return (
    <section className="card pad stack" aria-label="Preview">
      <div className="label">As a payer sees it</div>
      <div className="preview">
        <div className="row">
          {logo && <img src={logo} alt="" />}
          <span className="strong">{title}</span>
        </div>
        <div>
          <div className="quiet">Order 1001</div>
          <div className="money">
            19.90<span className="unit"> USDC</span>
          </div>
        </div>
        <div className="pay" style={{ background: color, color: inkOn(color) }}>
          Pay with a wallet
        </div>
      </div>
    </section>
  )
}
