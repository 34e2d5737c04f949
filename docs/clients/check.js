const { tell, unfit } = require("./common.js");

const url = process.env.STINT_URL ?? "http://127.0.0.1:8080";

// check asks whether a request may pass. It does not throw.
exports.check = async (attributes, cost = 1) => {
  if (unfit(attributes, cost)) return { status: 400, wait: 0, fields: [] };
  try {
    const response = await fetch(url + "/v1/check", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ attributes, cost }),
      signal: AbortSignal.timeout(250),
    });
    const { delay_ms = 0 } = await response.json();
    const fields = [...response.headers].filter(([name]) => /^(ratelimit|x-ratelimit|retry-after)/.test(name));
    return { status: response.status, wait: delay_ms, fields };
  } catch (error) {
    tell(error);
    return { status: 200, wait: 0, fields: [] }; // no answer: let it pass
  }
};
