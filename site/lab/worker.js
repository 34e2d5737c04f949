// The engine of the lab, as WebAssembly, in a worker: what it takes holds up no
// drawing.
"use strict";
importScripts("wasm_exec.js");

const ready = new Promise((resolve) => {
  self.stintReady = resolve;
});

async function start() {
  const packed = await fetch("lab.bin"); // gzip by no name that a server would unpack
  if (!packed.ok) throw new Error(`lab.bin: status ${packed.status}`);
  const plain = new Response(packed.body.pipeThrough(new DecompressionStream("gzip")), { headers: { "Content-Type": "application/wasm" } });
  const go = new Go();
  const { instance } = await WebAssembly.instantiateStreaming(plain, go.importObject);
  go.run(instance); // it stays
  await ready;
}
const started = start();

self.addEventListener("message", async ({ data: { id, what, body } }) => {
  try {
    await started;
    self.postMessage({ id, text: self.stint[what](body) });
  } catch (err) {
    self.postMessage({ id, failed: String(err) });
  }
});
