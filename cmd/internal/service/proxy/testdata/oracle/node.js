// Says what Node understood of a request, by its URL and the usual way to read
// cookies.
const http = require('http')
const decode = text => { try { return decodeURIComponent(text) } catch { return text } }
const server = http.createServer((request, response) => {
  const url = new URL(request.url, 'http://base')
  const cookies = {}
  for (const pair of (request.headers.cookie || '').split(';')) {
    const at = pair.indexOf('=')
    if (at < 0) continue
    const name = pair.slice(0, at).trim()
    let value = pair.slice(at + 1).trim()
    if (value[0] === '"') value = value.slice(1, -1)
    if (!(name in cookies)) cookies[name] = decode(value)
  }
  response.setHeader('Echo', '1')
  response.end(JSON.stringify({
    path: decode(url.pathname), host: request.headers.host || '', key: request.headers['x-api-key'] ?? null,
    cookie: cookies.session ?? null, query: url.searchParams.getAll('action').pop() ?? null,
  }))
})
server.keepAliveTimeout = 60000
server.listen(0, '127.0.0.1', () => console.log('127.0.0.1:' + server.address().port))
