// Says what Node understood of a request: by its URL and the usual way to read
// cookies, or, with the argument qs, as Express 4 reads a query.
const http = require('http')
const qs = process.argv[2] === 'qs' ? require('qs') : null
const decode = text => { try { return decodeURIComponent(text) } catch { return text } }
const last = v => Array.isArray(v) ? last(v[v.length - 1]) : v && typeof v === 'object' ? last(Object.values(v).pop()) : v
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
  const parsed = qs && qs.parse(request.url.slice(request.url.indexOf('?') + 1))
  const query = name => qs ? last(parsed[name]) : url.searchParams.getAll(name).pop()
  response.setHeader('Echo', '1')
  response.end(JSON.stringify({
    path: decode(url.pathname), host: request.headers.host, method: request.method, 'header.x-api-key': request.headers['x-api-key'],
    'cookie.session': cookies.session, 'cookie.user_id': cookies.user_id, 'query.action': query('action'), 'query.api_key': query('api_key'),
  }))
})
server.keepAliveTimeout = 60000
server.listen(0, '127.0.0.1', () => console.log('127.0.0.1:' + server.address().port))
