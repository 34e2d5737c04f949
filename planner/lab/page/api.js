// Asking the lab.

/** about returns what there is to choose from. */
export const about = () => ask("v1/lab");

/** simulate returns the lab's answer, or throws what is wrong in words. */
export const simulate = (body) =>
  ask("v1/simulate", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The lab does not answer: is it still running?");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail);
  return answer;
}

/**
 * plan sends a log. It returns a promise of the answer, which is undefined once
 * stop has been called, and stop. progress is called with how many bytes have been
 * sent, of how many.
 */
export function plan(log, query, progress) {
  const request = new XMLHttpRequest();
  const answer = new Promise((resolve, reject) => {
    request.open("POST", `v1/plan?${query}`);
    request.responseType = "json";
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.addEventListener("progress", (e) => progress(e.loaded, e.total));
    request.addEventListener("load", () => {
      if (request.status === 200 && request.response) resolve(request.response);
      else reject(new Error(request.response?.detail ?? `The lab answered with status ${request.status}.`));
    });
    request.addEventListener("error", () => reject(new Error("The log did not arrive: is the lab still running, and the file where it was?")));
    request.addEventListener("abort", () => resolve());
    request.send(log);
  });
  return { answer, stop: () => request.abort() };
}
