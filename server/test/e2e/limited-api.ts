/** An API process of a limits test: started with its settings as JSON, it prints its address and ends with its parent. */
import type { Settings } from "../../src/platform/config/settings.ts"
import { openLimits } from "../../src/platform/limits/limiter.ts"
import { openLog } from "../../src/platform/log.ts"
import { startService } from "../service.ts"

const settings = JSON.parse(process.argv[2] ?? "{}") as Partial<Settings>
process.on("disconnect", () => process.exit())
/** More than a busy machine needs for an answer of Redis. */
const PATIENCE_MS = 2_000
const limits = await openLimits({ redisUrl: settings.redisUrl, installation: "tested" }, openLog("fatal"), PATIENCE_MS)
const service = await startService({ settings, limits })
process.send?.(await service.listen())
