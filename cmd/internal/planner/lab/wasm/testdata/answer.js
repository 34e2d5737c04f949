// Runs the engine in Node: a body a line in, an answer a line out.
//   node answer.js wasm_exec.js lab.wasm < bodies
"use strict";
globalThis.performance ??= require("perf_hooks").performance;
globalThis.crypto ??= require("crypto").webcrypto;
require(process.argv[2]);
const fs = require("fs");
globalThis.stintReady = () => {
  const bodies = fs.readFileSync(0, "utf8").split("\n").filter(Boolean);
  const lines = bodies.map((body) => globalThis.stint.simulate(body));
  fs.writeFileSync(1, [globalThis.stint.choices(), ...lines].join("\n") + "\n");
  process.exit(0);
};
const go = new Go();
WebAssembly.instantiate(fs.readFileSync(process.argv[3]), go.importObject).then(({ instance }) => go.run(instance));
