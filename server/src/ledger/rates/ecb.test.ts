import { describe, expect, it } from "vitest"
import { parseEcb } from "./ecb.ts"

const daily = `<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref">
	<gesmes:subject>Reference rates</gesmes:subject>
	<gesmes:Sender><gesmes:name>European Central Bank</gesmes:name></gesmes:Sender>
	<Cube>
		<Cube time='2026-11-27'>
			<Cube currency='USD' rate='1.0800'/>
			<Cube currency='JPY' rate='162.00'/>
		</Cube>
	</Cube>
</gesmes:Envelope>`
const history = `<gesmes:Envelope><Cube><Cube time="2026-11-27"><Cube currency="USD" rate="1.08"/><Cube currency="GBP" rate="0.85"/></Cube><Cube time="2026-11-26"><Cube currency="USD" rate="1.07"/></Cube></Cube></gesmes:Envelope>`
const csv = "Date,USD,JPY,CYP,\r\n2026-11-27,1.08,162.00,N/A,\r\n2026-11-26,1.07,161.5,0.58,\r\n"

describe("a file of the ECB", () => {
  it.each([
    ["of one day", daily, [{ date: "2026-11-27", perEuro: { USD: "1.0800", JPY: "162.00" } }]],
    [
      "of many days, the oldest first",
      history,
      [
        { date: "2026-11-26", perEuro: { USD: "1.07" } },
        { date: "2026-11-27", perEuro: { USD: "1.08", GBP: "0.85" } },
      ],
    ],
    [
      "as CSV, without what has no rate",
      csv,
      [
        { date: "2026-11-26", perEuro: { USD: "1.07", JPY: "161.5", CYP: "0.58" } },
        { date: "2026-11-27", perEuro: { USD: "1.08", JPY: "162.00" } },
      ],
    ],
  ])("%s", (_, file, days) => {
    expect(parseEcb(file)).toEqual(days)
  })

  it.each([
    ["", "The file is neither the XML nor the CSV"],
    ["<html>Not found</html>", "The file is neither the XML nor the CSV"],
    ["id,amount\n1,2\n", "The file is neither the XML nor the CSV"],
    [daily.replace("USD", "GBP"), "The file's rates of 2026-11-27 do not include the US dollar"],
    [daily.replace("1.0800", "0.0000"), "The file's rates of 2026-11-27 do not include the US dollar"],
    [daily.replace("1.0800", "-1"), "The file's rates of 2026-11-27 do not include the US dollar"],
    [daily.replace("1.0800", "1e9"), "The file's rates of 2026-11-27 do not include the US dollar"],
  ])("%j is refused", (file, message) => {
    expect(() => parseEcb(file)).toThrow(message)
  })
})
