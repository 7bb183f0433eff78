-- Balancing by name from a shared dict, in the three ways in use: what a name's servers are is
-- decoded for each request, or kept until the dict's version moves, or fetched by a timer.
local cjson = require "cjson"
local balancer = require "ngx.balancer"

local dict = ngx.shared.peers
local turns, kept, version, fetched = {}, {}, nil, {}
local _M = {}

-- The next server in turn.
local function go(name, servers)
    local turn = (turns[name] or 0) % #servers + 1
    turns[name] = turn
    local server = servers[turn]
    local ok, err = balancer.set_current_peer(server[1], server[2])
    if not ok then
        ngx.log(ngx.ERR, err)
    end
end

function _M.decoded(name)
    go(name, cjson.decode(dict:get(name)))
end

function _M.cached(name)
    local now = dict:get("version")
    if now ~= version then
        kept, version = {}, now
    end
    local servers = kept[name]
    if not servers then
        servers = cjson.decode(dict:get(name))
        kept[name] = servers
    end
    go(name, servers)
end

function _M.synced(name)
    go(name, fetched[name])
end

-- One update: the servers of one name, as the body of a request.
function _M.update(name)
    ngx.req.read_body()
    dict:set(name, ngx.req.get_body_data())
    dict:incr("version", 1, 0)
    ngx.say("ok")
end

function _M.fetch()
    for _, name in ipairs(dict:get_keys(0)) do
        if name ~= "version" then
            fetched[name] = cjson.decode(dict:get(name))
        end
    end
end

function _M.fetch_each(seconds)
    _M.fetch()
    ngx.timer.every(seconds, _M.fetch)
end

return _M
