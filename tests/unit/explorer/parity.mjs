// The largest differences between the page's arithmetic and the expected results, which come on standard input.

import { readFileSync } from "node:fs";

import { differences } from "./differences.mjs";

const page = await import(`file://${process.argv[2]}/arithmetic.js`);
process.stdout.write(JSON.stringify(differences(page, JSON.parse(readFileSync(0, "utf8")))));
