// Answers one request of its own, says how it was ended.
const server = require("http").createServer((request, response) => response.end(request.url));
server.listen(3000, "127.0.0.1", () => console.log("listening"));
process.on("SIGTERM", () => { console.log("ended"); process.exit(3); });
