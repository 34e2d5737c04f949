const express = require("express");
const { limit } = require("./limit.js");

const app = express();
app.use(limit());
app.get("/api", (req, res) => res.send("hello"));
const server = app.listen(process.env.PORT ?? 3000, "127.0.0.1", () => console.log(server.address().port));
