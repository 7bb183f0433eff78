// Drives one upstream through the client library that NGINX Plus's own tools are made with, and
// looks at every answer.
//
//	drive http://127.0.0.1:8081/api
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"time"

	plus "github.com/nginxinc/nginx-plus-go-client/client"
)

// Its own upstreams: the one that is driven, and one with an address of it.
const (
	driven = "go-driven"
	beside = "go-beside"
)

var web = &http.Client{Timeout: 10 * time.Second}

// How many were looked at.
var seen int

func main() {
	if len(os.Args) != 2 {
		fail("usage: drive API")
	}
	api := strings.TrimRight(os.Args[1], "/")
	put(api, driven, `{"servers": []}`)
	put(api, beside, `{"servers": [{"server": "127.0.0.1:9"}]}`)
	// The address as people write it, with a slash at its end, and every version that the
	// client knows: the paths differ.
	for _, endpoint := range []string{api, api + "/"} {
		for version := 4; version <= 8; version++ {
			client, err := plus.NewNginxClientWithVersion(web, endpoint, version)
			check(err, "a client of version %d at %s", version, endpoint)
			drive(client)
		}
	}
	latest, err := plus.NewNginxClient(web, api)
	check(err, "a client")
	figures(latest)
	fmt.Printf("go: %d answers are as NGINX Plus's client expects them\n", seen)
}

// drive adds, lists, updates, synchronises, drains, and deletes; begins and ends with no server.
func drive(client *plus.NginxClient) {
	check(client.CheckIfUpstreamExists(driven), "the upstream is there")
	refused(client.CheckIfUpstreamExists("go-nowhere"), "error.code=UpstreamNotFound")
	is("a new upstream", servers(client), "")

	added := plus.UpstreamServer{
		Server: "127.0.0.1:9", Weight: number(3), MaxConns: number(10), MaxFails: number(2),
		FailTimeout: "21s", SlowStart: "7s", Backup: truth(false), Down: truth(true),
	}
	check(client.AddHTTPServer(driven, added), "a server is added")
	is("all that was given", servers(client),
		"127.0.0.1:9 weight=3 max_conns=10 max_fails=2 fail_timeout=21s slow_start=7s down")
	refused(client.AddHTTPServer(driven, added), "already exists")
	refused(client.AddHTTPServer("go-nowhere", added), "error.code=UpstreamNotFound")

	id := list(client)[0].ID
	change := plus.UpstreamServer{ID: id, Server: "127.0.0.1:9", Weight: number(5), Down: truth(false)}
	check(client.UpdateHTTPServer(driven, change), "a server is changed")
	is("only what was named", servers(client),
		"127.0.0.1:9 weight=5 max_conns=10 max_fails=2 fail_timeout=21s slow_start=7s")
	is("its id", list(client)[0].ID, id)
	change.ID = 1 << 30
	refused(client.UpdateHTTPServer(driven, change), "error.code=UpstreamServerNotFound")
	change.ID, change.Weight = id, number(-1)
	refused(client.UpdateHTTPServer(driven, change), "error.code=UpstreamBadWeight")

	// A list is stated as a whole: one comes, one goes, one is another than before.
	wanted := []plus.UpstreamServer{
		{Server: "127.0.0.2:9"},
		{Server: "127.0.0.3", Weight: number(2)},
		{Server: "127.0.0.1:9", Weight: number(4), MaxConns: number(10), MaxFails: number(2),
			FailTimeout: "21s", SlowStart: "7s"},
		{Server: "unix:/run/app.sock", Backup: truth(true)},
		{Server: "[::1]:9"},
	}
	sync(client, wanted, 4, 0, 1)
	state := servers(client)
	is("the list", state, strings.Join([]string{
		"127.0.0.1:9 weight=4 max_conns=10 max_fails=2 fail_timeout=21s slow_start=7s",
		"127.0.0.2:9 weight=1 max_conns=0 max_fails=1 fail_timeout=10s slow_start=0s",
		"127.0.0.3:80 weight=2 max_conns=0 max_fails=1 fail_timeout=10s slow_start=0s",
		"[::1]:9 weight=1 max_conns=0 max_fails=1 fail_timeout=10s slow_start=0s",
		"unix:/run/app.sock weight=1 max_conns=0 max_fails=1 fail_timeout=10s slow_start=0s backup",
	}, "; "))
	sync(client, wanted, 0, 0, 0)
	is("the same list again", servers(client), state)
	is("an id outlives a list", find(client, "127.0.0.1:9").ID, id)
	sync(client, wanted[:2], 0, 3, 0)

	// A drain is a change of one server; down false ends it.
	drained := find(client, "127.0.0.2:9")
	check(client.UpdateHTTPServer(driven, plus.UpstreamServer{
		ID: drained.ID, Server: drained.Server, Drain: true}), "a drain")
	is("draining", find(client, "127.0.0.2:9").Drain, true)
	stats(client, "draining")
	check(client.UpdateHTTPServer(driven, plus.UpstreamServer{
		ID: drained.ID, Server: drained.Server, Down: truth(true)}), "down")
	stats(client, "down")
	check(client.UpdateHTTPServer(driven, plus.UpstreamServer{
		ID: drained.ID, Server: drained.Server, Down: truth(false)}), "up")
	is("no drain", find(client, "127.0.0.2:9").Drain, false)
	stats(client, "up")

	for _, server := range list(client) {
		check(client.DeleteHTTPServer(driven, server.Server), "a server is deleted")
	}
	refused(client.DeleteHTTPServer(driven, "127.0.0.2:9"), "doesn't exist")
	is("the end", servers(client), "")
}

// stats finds the state of the drained server in what GetStats says.
func stats(client *plus.NginxClient, state string) {
	all, err := client.GetStats()
	check(err, "figures")
	for _, peer := range all.Upstreams[driven].Peers {
		if peer.Server == "127.0.0.2:9" {
			is("the state", peer.State, state)
			return
		}
	}
	fail("no peer 127.0.0.2:9 in %+v", all.Upstreams)
}

// figures reads everything that the client can read.
func figures(client *plus.NginxClient) {
	all, err := client.GetStats()
	check(err, "figures")
	if all.NginxInfo.Version == "" || all.NginxInfo.ProcessID == 0 || all.NginxInfo.LoadTimestamp == "" {
		fail("nginx is %+v", all.NginxInfo)
	}
	is("upstreams", len(all.Upstreams[beside].Peers), 1)
	peer := all.Upstreams[beside].Peers[0]
	is("a peer", fmt.Sprintln(peer.Server, peer.Name, peer.State, peer.Weight, peer.Requests),
		"127.0.0.1:9 127.0.0.1:9 up 1 0\n")
	is("stream", len(all.StreamUpstreams)+len(all.StreamServerZones), 0)
	if all.StreamZoneSync != nil {
		fail("zone_sync is %+v", all.StreamZoneSync)
	}
	_, err = client.GetAllKeyValPairs()
	refused(err, "error.code=PathNotFound")
	_, err = client.GetStreamServers(driven)
	refused(err, "error.code=PathNotFound")
}

// sync states a list and looks at how many servers the client saw come, go, and change.
func sync(client *plus.NginxClient, wanted []plus.UpstreamServer, come, gone, changed int) {
	a, d, u, err := client.UpdateHTTPServers(driven, wanted)
	check(err, "a list")
	is("come, gone, changed", fmt.Sprint(len(a), len(d), len(u)), fmt.Sprint(come, gone, changed))
}

func list(client *plus.NginxClient) []plus.UpstreamServer {
	all, err := client.GetHTTPServers(driven)
	check(err, "the list")
	return all
}

func find(client *plus.NginxClient, address string) plus.UpstreamServer {
	for _, server := range list(client) {
		if server.Server == address {
			return server
		}
	}
	fail("no server %s", address)
	return plus.UpstreamServer{}
}

// servers tells the list in nginx's words, in the order of addresses.
func servers(client *plus.NginxClient) string {
	var all []string
	for _, s := range list(client) {
		if s.Weight == nil || s.MaxConns == nil || s.MaxFails == nil || s.Backup == nil || s.Down == nil {
			fail("%s lacks a member", s.Server)
		}
		text := fmt.Sprintf("%s weight=%d max_conns=%d max_fails=%d fail_timeout=%s slow_start=%s",
			s.Server, *s.Weight, *s.MaxConns, *s.MaxFails, s.FailTimeout, s.SlowStart)
		for _, flag := range []struct {
			name string
			set  bool
		}{{" backup", *s.Backup}, {" down", *s.Down}, {" drain", s.Drain}} {
			if flag.set {
				text += flag.name
			}
		}
		all = append(all, text)
	}
	sort.Strings(all)
	return strings.Join(all, "; ")
}

// put makes an upstream, which the API of NGINX Plus does not.
func put(api, upstream, body string) {
	request, err := http.NewRequest(http.MethodPut, api+"/v1/upstreams/"+upstream, strings.NewReader(body))
	check(err, "a request")
	answer, err := web.Do(request)
	check(err, "a PUT of %s", upstream)
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	check(err, "an answer")
	if answer.StatusCode/100 != 2 {
		fail("a PUT of %s: %d %s", upstream, answer.StatusCode, said)
	}
}

func number(n int) *int  { return &n }
func truth(b bool) *bool { return &b }

func is(what string, got, want interface{}) {
	seen++
	if got != want {
		fail("%s:\n got %v\nwant %v", what, got, want)
	}
}

func check(err error, what string, args ...interface{}) {
	seen++
	if err != nil {
		fail("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

func refused(err error, why string) {
	seen++
	if err == nil || !strings.Contains(err.Error(), why) {
		fail("wanted %q, got %v", why, err)
	}
}

func fail(text string, args ...interface{}) {
	fmt.Fprintf(os.Stderr, "go: "+text+"\n", args...)
	os.Exit(1)
}
