// Says what a framework of Node that trusts a proxy understood of a request, with the parsers of cookies and
// bodies that its documents name first: express, koa or fastify.
const decode = text => { try { return decodeURIComponent(text) } catch { return text } }
const last = v => Array.isArray(v) ? last(v[v.length - 1]) : v && typeof v === 'object' ? last(Object.values(v).pop()) : v
const text = v => v === undefined || v === null ? undefined : String(last(v))
const said = (path, host, request, cookies, query, body) => JSON.stringify({
  path: decode(path), host, method: request.method, 'header.x-api-key': request.headers['x-api-key'],
  'cookie.session': text(cookies('session')), 'cookie.user_id': text(cookies('user_id')),
  'query.action': text(query.action), 'query.api_key': text(query.api_key), 'body./model': text(body && body.model),
})
const listening = server => {
  server.keepAliveTimeout = 60000
  server.listen(0, '127.0.0.1', () => console.log('127.0.0.1:' + server.address().port))
}
const frameworks = {
  express () {
    const express = require('express')
    const app = express()
    app.set('trust proxy', true)
    app.use(express.json(), express.urlencoded({ extended: true }), require('cookie-parser')())
    app.use((request, response) => response.set('Echo', '1').end(said(request.path, request.hostname, request, name => request.cookies[name], request.query, request.body)))
    app.use((error, request, response, next) => response.status(error.status || 500).end())
    listening(require('http').createServer(app))
  },
  koa () {
    const app = new (require('koa'))({ proxy: true })
    app.silent = true
    app.use(require('koa-bodyparser')())
    app.use(async ctx => {
      ctx.set('Echo', '1')
      ctx.body = said(ctx.path, ctx.hostname, ctx.req, name => ctx.cookies.get(name), ctx.query, ctx.request.body)
    })
    listening(require('http').createServer(app.callback()))
  },
  async fastify () {
    const app = require('fastify')({ trustProxy: true })
    app.register(require('@fastify/cookie'))
    app.register(require('@fastify/formbody'))
    const answer = async (request, reply) => reply.header('Echo', '1').send(said(request.url.split('?')[0], request.hostname, request.raw, name => request.cookies[name], request.query, request.body))
    app.all('*', answer)
    console.log((await app.listen({ port: 0, host: '127.0.0.1' })).replace('http://', ''))
  },
}
frameworks[process.argv[2]]()
