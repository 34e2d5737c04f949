// unfit tells whether stint would not read a question: values that are no text, and long ones.
exports.unfit = (attributes, cost) =>
  !Number.isSafeInteger(cost) || cost < 0 ||
  Object.values(attributes).some((value) => value !== undefined && typeof value !== "string") ||
  JSON.stringify(attributes).length > 32_768;

// tell writes, once a minute, that requests pass because there is no answer.
let told = -Infinity;
exports.tell = (error) => {
  if (Date.now() - told < 60_000) return;
  told = Date.now();
  console.error("no answer from stint, so requests pass:", error.message);
};
