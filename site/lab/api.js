// Asking the lab: in place of a server, the engine in a worker of this page.

const worker = new Worker("worker.js");
const waiting = new Map();
let last = 0;
let gone = false;

worker.addEventListener("message", ({ data }) => {
  const { resolve, reject } = waiting.get(data.id);
  waiting.delete(data.id);
  if (data.failed) reject(new Error(data.failed));
  else resolve(JSON.parse(data.text));
});

worker.addEventListener("error", () => {
  gone = true; // no answer comes any more
  for (const { reject } of waiting.values()) reject();
  waiting.clear();
});

const failed = "The engine of the lab did not load: reload the page. It takes a browser with WebAssembly.";

async function ask(what, body) {
  const answer = await new Promise((resolve, reject) => {
    if (gone) return reject();
    waiting.set(++last, { resolve, reject });
    worker.postMessage({ id: last, what, body });
  }).catch(() => {
    throw new Error(failed);
  });
  if (answer.error !== undefined) throw new Error(answer.error);
  return answer;
}

/** about returns what there is to choose from. */
export const about = () => ask("choices");

/** simulate returns the lab's answer, or throws what is wrong in words. */
export const simulate = (body) => ask("simulate", JSON.stringify(body));

/** plan is for a lab that reads logs, which this one does not. */
export function plan() {
  throw new Error("stint lab reads logs: this page does not.");
}
