// Says what Express 4 understands of a request, which reads queries by qs.
const http = require('http')
const qs = require('qs')
const server = http.createServer((request, response) => {
  const at = request.url.indexOf('?')
  const query = at < 0 ? {} : qs.parse(request.url.slice(at + 1))
  const action = query.action
  response.setHeader('Echo', '1')
  response.end(JSON.stringify({
    path: at < 0 ? request.url : request.url.slice(0, at), host: request.headers.host || '', key: request.headers['x-api-key'] ?? null,
    cookie: null, query: Array.isArray(action) ? String(action[action.length - 1]) : typeof action === 'object' ? String(Object.values(action)[0]) : action ?? null,
  }))
})
server.keepAliveTimeout = 60000
server.listen(0, '127.0.0.1', () => console.log('127.0.0.1:' + server.address().port))
