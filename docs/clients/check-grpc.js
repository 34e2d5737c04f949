const grpc = require("@grpc/grpc-js");
const { loadSync } = require("@grpc/proto-loader");
const { tell, unfit } = require("./common.js");

const { RateLimitService } = grpc.loadPackageDefinition(loadSync(__dirname + "/rls.proto", { keepCase: true, enums: String })).envoy.service.ratelimit.v3;
const client = new RateLimitService(process.env.STINT_GRPC ?? "127.0.0.1:8081", grpc.credentials.createInsecure(), { "grpc.enable_http_proxy": 0 });
exports.client = client;

// check asks whether a request may pass. It does not throw.
exports.check = (attributes, cost = 1) => new Promise((done) => {
  if (unfit(attributes, cost) || cost > 0xffffffff) return done({ pass: false });
  const entries = Object.entries(attributes).filter(([, value]) => value !== undefined).map(([key, value]) => ({ key, value }));
  const request = { domain: "api", descriptors: [{ entries }], hits_addend: cost };
  client.ShouldRateLimit(request, { deadline: Date.now() + 250 }, (error, answer) => {
    const { UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED } = grpc.status;
    if (!error) return done({ pass: answer.overall_code === "OK" });
    if (![UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED].includes(error.code)) return done({ pass: false });
    tell(error);
    done({ pass: true }); // no answer: let it pass
  });
});
