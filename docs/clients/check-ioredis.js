const { Redis, ReplyError } = require("ioredis");
const { tell, unfit } = require("./common.js");

const url = process.env.STINT_REDIS_URL ?? "redis://127.0.0.1:6380";
const client = new Redis(url, { enableOfflineQueue: false, commandTimeout: 250 });
let refused = false; // for its token, which is no outage
client.on("error", (error) => { refused = /NOAUTH|WRONGPASS/.test(error.message); }); // it connects again by itself
client.on("ready", () => { refused = false; });
exports.client = client;

// check asks whether a request may pass. It does not throw.
exports.check = async (attributes, cost = 1) => {
  if (unfit(attributes, cost)) return { pass: false, wait: 0 };
  const words = Object.entries(attributes).filter(([, value]) => value !== undefined).flat();
  try {
    const reply = await client.call("STINT.CHECK", ...words, "COST", cost);
    const answer = {};
    for (let i = 0; i < reply.length; i += 2) answer[reply[i]] = reply[i + 1];
    return { pass: answer.allowed === 1, wait: answer.delay_ms ?? 0, retryAfter: answer.retry_after_ms };
  } catch (error) {
    if (refused || error instanceof ReplyError) return { pass: false, wait: 0 };
    tell(error);
    return { pass: true, wait: 0 }; // no answer: let it pass
  }
};
