local http = require "socket.http"
http.TIMEOUT = 6
local own = {host = true, upgrade = true, expect = true, te = true, ["content-length"] = true, ["transfer-encoding"] = true}
-- Headers from which servers take another host or path than rules have seen.
local moves = {}
for name in ("forwarded x-forwarded-host x-forwarded-prefix x-forwarded-server x-host x-http-host-override " ..
  "x-original-host x-original-url x-rewrite-url x-script-name script-name"):gmatch("%S+") do moves[name] = true end
function check(r)
  local ask = {}
  for name, value in pairs(r:headers_in_table()) do
    name = name:lower()
    if moves[(name:gsub("%W", "-"))] then
      r.headers_in[name] = nil
    elseif not own[name] and not name:find("^x%-forwarded%-") and not name:find("^x%-original%-") then ask[name] = value end
  end
  ask["x-original-method"], ask["x-original-uri"] = r.method, r.unparsed_uri
  ask["x-original-host"], ask["x-forwarded-for"] = r.hostname, r.useragent_ip
  local _, status, head = http.request{url = "http://127.0.0.1:8080/auth", headers = ask, redirect = false}
  for _, name in ipairs{"RateLimit", "RateLimit-Policy", "Retry-After"} do
    if head and head[name:lower()] then r.err_headers_out[name] = head[name:lower()] end
  end
  if status == 200 then return apache2.DECLINED end
  return type(status) == "number" and status >= 400 and status or 503
end
