#!/usr/bin/env node
// The command of the package. JavaScript that older versions of Node read too, so that they get a sentence.
const NEEDED = 26
if (Number(process.versions.node.split(".")[0]) >= NEEDED) import("../server/sluice.js").then(sluice => sluice.run())
else {
  process.stderr.write(
    `Sluice needs Node ${NEEDED} or newer; this is ${process.version}. Install a newer one from https://nodejs.org.\n`,
  )
  process.exitCode = 1
}
