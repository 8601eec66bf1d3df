/**
 * `npm run types`: writes `src/wire.ts` anew.
 *
 * Needs the program `lingua`, at `TESTED_LINGUA` or where `cargo build` puts it.
 */

import { writeFileSync } from "node:fs";

import { openapi } from "./scheduler.mjs";
import { formatted, wireTypes } from "./wire-types.mjs";

writeFileSync("src/wire.ts", formatted(wireTypes(await openapi())));
