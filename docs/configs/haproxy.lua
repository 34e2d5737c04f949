local own = {host = true, connection = true, upgrade = true, expect = true, te = true, ["content-length"] = true, ["transfer-encoding"] = true}
-- Headers from which servers take another host or path than rules have seen.
local moves = {}
for name in ("forwarded x-forwarded-host x-forwarded-prefix x-forwarded-server x-host x-http-host-override " ..
  "x-original-host x-original-url x-rewrite-url x-script-name script-name"):gmatch("%S+") do moves[name] = true end
core.register_action("stint", {"http-req"}, function(txn)
  local ask, count = {}, 0
  for name, values in pairs(txn.http:req_get_headers()) do
    for _ in pairs(values) do count = count + 1 end
    if moves[(name:gsub("%W", "-"))] then
      txn.http:req_del_header(name)
    elseif not own[name] and not name:find("^x%-forwarded%-") and not name:find("^x%-original%-") then ask[name] = values end
  end
  if count > 90 then return txn:done(txn:reply{status = 431}) end -- the client of HAProxy has room for 101, and crashes beyond
  ask["x-original-method"], ask["x-original-uri"] = {txn.sf:method()}, {txn.sf:pathq()}
  ask["x-original-host"], ask["x-forwarded-for"] = {txn.sf:req_fhdr("host")}, {txn.sf:src()}
  local answer = core.httpclient():get{url = "http://127.0.0.1:8080/auth", headers = ask, timeout = 6000}
  local reply = txn:reply{status = answer.status >= 400 and answer.status or 503}
  for _, name in ipairs{"ratelimit", "ratelimit-policy", "retry-after"} do
    local value = answer.headers and answer.headers[name] and answer.headers[name][0]
    if value then txn:set_var("txn." .. name:gsub("-", "_"), value); reply:add_header(name, value) end
  end
  if answer.status ~= 200 then txn:done(reply) end
end)
