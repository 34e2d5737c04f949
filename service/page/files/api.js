// Calls to the server. It identifies the operator by a cookie that scripts cannot read.

/** A Problem is why something was not done. */
export class Problem extends Error {
  constructor(status, answer) {
    super(answer?.detail || `The server answered with status ${status}.`);
    this.status = status;
    this.field = answer?.field ?? "";
  }
}

/** ask sends a request and returns the answer, or throws a Problem. */
export async function ask(method, path, body, headers = {}) {
  let response;
  const options = { method, headers };
  headers["Stint-Exact-Key"] = "1"; // keys are those of answers
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem(0, { detail: "The server does not answer: is it still running?" });
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Problem(response.status, answer);
  return answer;
}

export const get = (path) => ask("GET", path);
export const post = (path, body, headers) => ask("POST", path, body, headers);

/** query writes parameters behind a path; those without a value are left out. */
export function query(path, values) {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined && value !== "") all.append(name, value);
  return `${path}?${all}`;
}
