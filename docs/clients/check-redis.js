const { createClient, ErrorReply } = require("redis");
const { tell, unfit } = require("./common.js");

const url = process.env.STINT_REDIS_URL ?? "redis://127.0.0.1:6380";
const client = createClient({ url, RESP: 2, disableOfflineQueue: true });
let refused = false; // for its token, which is no outage
client.on("error", (error) => { refused = /NOAUTH|WRONGPASS/.test(error.message); }); // it connects again by itself
client.on("ready", () => { refused = false; });
client.connect().catch(() => {});
exports.client = client;

// The client's own timeout is for commands that were not sent yet.
const late = () => new Promise((_, fail) => setTimeout(fail, 250, new Error("no answer")));

// check asks whether a request may pass. It does not throw.
exports.check = async (attributes, cost = 1) => {
  if (unfit(attributes, cost)) return { pass: false, wait: 0 };
  const words = Object.entries(attributes).filter(([, value]) => value !== undefined).flat();
  try {
    const reply = await Promise.race([client.sendCommand(["STINT.CHECK", ...words, "COST", String(cost)]), late()]);
    const answer = {};
    for (let i = 0; i < reply.length; i += 2) answer[reply[i]] = reply[i + 1];
    return { pass: answer.allowed === 1, wait: answer.delay_ms ?? 0, retryAfter: answer.retry_after_ms };
  } catch (error) {
    if (refused || error instanceof ErrorReply) return { pass: false, wait: 0 };
    tell(error);
    return { pass: true, wait: 0 }; // no answer: let it pass
  }
};
