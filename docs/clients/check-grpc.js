const grpc = require("@grpc/grpc-js");
const { loadSync } = require("@grpc/proto-loader");

const { RateLimitService } = grpc.loadPackageDefinition(loadSync(__dirname + "/rls.proto", { keepCase: true, enums: String })).envoy.service.ratelimit.v3;
const client = new RateLimitService(process.env.STINT_GRPC ?? "127.0.0.1:8081", grpc.credentials.createInsecure());
exports.client = client;

// check asks whether a request may pass. It does not throw.
exports.check = (attributes, cost = 1) => new Promise((done) => {
  const entries = Object.entries(attributes).map(([key, value]) => ({ key, value }));
  const request = { domain: "api", descriptors: [{ entries }], hits_addend: cost };
  client.ShouldRateLimit(request, { deadline: Date.now() + 250 }, (error, answer) => {
    const { INVALID_ARGUMENT, UNAUTHENTICATED } = grpc.status;
    if (error) return done({ pass: ![INVALID_ARGUMENT, UNAUTHENTICATED].includes(error.code) }); // no answer: let it pass
    done({ pass: answer.overall_code !== "OVER_LIMIT" });
  });
});
