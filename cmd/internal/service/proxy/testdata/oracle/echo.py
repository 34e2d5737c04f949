"""Says what Python understood of a request: as WSGI by wsgiref, or as ASGI."""
import json
import sys
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs


def understood(path, host, key, cookie, query):
    try:
        session = SimpleCookie(cookie).get("session")
    except CookieError:
        session = None
    action = parse_qs(query, keep_blank_values=True).get("action")
    return json.dumps({"path": path, "host": host, "key": key,
                       "cookie": session and session.value, "query": action and action[-1]}).encode()


def wsgi(environ, start):
    body = understood(environ.get("PATH_INFO", ""), environ.get("HTTP_HOST", ""), environ.get("HTTP_X_API_KEY"),
                      environ.get("HTTP_COOKIE", ""), environ.get("QUERY_STRING", ""))
    start("200 OK", [("Echo", "1"), ("Content-Length", str(len(body)))])
    return [body]


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    body = understood(scope["path"], headers.get("host", ""), headers.get("x-api-key"),
                      headers.get("cookie", ""), scope["query_string"].decode("latin-1"))
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"echo", b"1"), (b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

        def server_bind(self):  # without a look-up of its own name
            import socketserver
            socketserver.TCPServer.server_bind(self)
            self.server_name, self.server_port = "127.0.0.1", self.server_address[1]
            self.setup_environ()

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_):
            pass

        def address_string(self):
            return self.client_address[0]

    server = Server(("127.0.0.1", 0), Quiet)
    server.set_app(wsgi)
    print("127.0.0.1:%d" % server.server_port, flush=True)
    server.serve_forever()
