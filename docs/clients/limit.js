const { check } = require("./check.js");

// Empty and dot segments, and encodings of what needs none: Express keeps them, the rules do not.
const unclear = /\/\.{0,2}\/|\/\.{1,2}$|%(2[de]|3\d|[46][1-9a-f]|[57][\da]|5f|7e)/i;

// limit answers for requests that may not pass. req.ip needs "trust proxy" behind one.
exports.limit = () => async (req, res, next) => {
  const path = req.originalUrl.split("?")[0];
  if (unclear.test(path)) return res.sendStatus(400);
  const answer = await check({ method: req.method, path, ip: req.ip });
  for (const [name, value] of answer.fields) res.set(name, value);
  if (answer.status !== 200) return res.sendStatus(answer.status);
  if (answer.wait > 0) await new Promise((done) => setTimeout(done, answer.wait));
  next();
};
