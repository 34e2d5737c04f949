"""Says what Python understood of a request: as WSGI by wsgiref, or as ASGI."""
import json
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs


def understood(method, path, host, key, cookie, query):
    try:
        cookies = SimpleCookie(cookie)
    except CookieError:
        cookies = {}
    parameters = parse_qs(query, keep_blank_values=True)
    said = {"path": path, "host": host, "method": method, "header.x-api-key": key}
    said.update({"cookie." + name: cookies[name].value for name in ("session", "user_id") if name in cookies})
    said.update({"query." + name: parameters[name][-1] for name in ("action", "api_key") if name in parameters})
    return json.dumps(said).encode()


def wsgi(environ, start):
    body = understood(environ.get("REQUEST_METHOD"), environ.get("PATH_INFO", ""), environ.get("HTTP_HOST", ""), environ.get("HTTP_X_API_KEY"),
                      environ.get("HTTP_COOKIE", ""), environ.get("QUERY_STRING", ""))
    start("200 OK", [("Echo", "1"), ("Content-Length", str(len(body)))])
    return [body]


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    body = understood(scope["method"], scope["path"], headers.get("host", ""), headers.get("x-api-key"),
                      headers.get("cookie", ""), scope["query_string"].decode("latin-1"))
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"echo", b"1"), (b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


def serve(application):
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
    server.set_app(application)
    print("127.0.0.1:%d" % server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(wsgi)
