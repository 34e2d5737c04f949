"""Says what a framework of Python that trusts a proxy understood of a request: django, flask, or starlette as ASGI."""
import json
import sys

NAMES = (("cookie.", ("session", "user_id")), ("query.", ("action", "api_key")))


def understood(method, path, host, key, cookies, query, model):
    said = {"path": path, "host": host, "method": method, "header.x-api-key": key}
    for (kind, names), values in zip(NAMES, (cookies, query)):
        said.update({kind + name: values.get(name) for name in names if values.get(name) is not None})
    if model is not None:
        said["body./model"] = str(model)
    return json.dumps(said)


def field(read, form):
    """The field of a JSON body, or else of a form."""
    try:
        return read()["model"]
    except Exception:
        return form().get("model")


def django():
    from django.conf import settings
    settings.configure(DEBUG=False, SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, LOGGING_CONFIG=None, USE_TZ=True, USE_X_FORWARDED_HOST=True)
    import django as framework
    framework.setup()
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import re_path

    def view(request):
        model = field(lambda: json.loads(request.body), lambda: request.POST)
        response = HttpResponse(understood(request.method, request.path_info, request._get_raw_host(), request.META.get("HTTP_X_API_KEY"),
                                           request.COOKIES, request.GET, model))
        response["Echo"] = "1"
        return response

    globals()["urlpatterns"] = [re_path(r"(?s)^.*$", view)]
    return get_wsgi_application()


def flask():
    from flask import Flask, Response, request
    from werkzeug.middleware.proxy_fix import ProxyFix
    application = Flask(__name__)

    @application.before_request
    def view():
        model = field(lambda: request.get_json(silent=True), lambda: request.form)
        return Response(understood(request.method, request.path, request.environ.get("HTTP_HOST"), request.headers.get("X-Api-Key"),
                                   request.cookies, request.args, model), headers={"Echo": "1"})

    return ProxyFix(application.wsgi_app, x_host=1, x_prefix=1)


async def starlette(scope, receive, send):
    from starlette.requests import Request
    from starlette.responses import Response
    if scope["type"] != "http":
        return
    request = Request(scope, receive)
    try:
        model = (await request.json())["model"]
    except Exception:
        model = None
    text = understood(request.method, scope["path"], request.headers.get("host"), request.headers.get("x-api-key"), request.cookies, request.query_params, model)
    await Response(text, headers={"Echo": "1"})(scope, receive, send)


if __name__ == "__main__":
    from echo import serve
    serve({"django": django, "flask": flask}[sys.argv[1]]())
