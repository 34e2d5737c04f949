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
    throw new Error("The lab does not answer: is stint lab still running?");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}
