//go:build conformance

package swarm

import (
	"net/http"
	"testing"

	"github.com/slipway-mcp/slipway/test/npm"
)

var nodeMakes = map[Make]Clients{TypeScriptV1: {TypeScriptV1: 4}, TypeScriptV2: {TypeScriptV2: 4}}

func typescript(t *testing.T) Node {
	t.Helper()
	modules, err := npm.Install(t.Context(), "../eras")
	if err != nil {
		t.Fatal(err)
	}
	return Node{Program: "node", Modules: modules}
}

func TestNothingIsWrongInTypeScript(t *testing.T) {
	for name, clients := range nodeMakes {
		t.Run(string(name), func(t *testing.T) { expectNothingWrong(t, Options{Clients: clients, Node: typescript(t)}) })
	}
}

func TestMischiefIsNoticedInTypeScript(t *testing.T) {
	for name, clients := range nodeMakes {
		t.Run(string(name), func(t *testing.T) { expectNoticed(t, Options{Clients: clients, Node: typescript(t)}) })
	}
}

func TestLostAnswersInTypeScript(t *testing.T) {
	for name, clients := range nodeMakes {
		t.Run(string(name), func(t *testing.T) { expectUnknownFates(t, Options{Clients: clients, Node: typescript(t)}) })
	}
}

func TestAllMakesTogether(t *testing.T) {
	expectNothingWrong(t, Options{Clients: Clients{Raw: 4, GoSDK: 3, TypeScriptV1: 2, TypeScriptV2: 10}, Node: typescript(t)})
}

func TestQuirksInTypeScript(t *testing.T) {
	for name, clients := range nodeMakes {
		options := Options{Clients: clients, Node: typescript(t)}
		t.Run(string(name)+" waits on", func(t *testing.T) { expectLostAnswersNoticed(t, options) })
		resume := func(r *http.Request) bool { return r.Header.Get(headerLast) != "" }
		t.Run(string(name)+" gives up", func(t *testing.T) {
			options.Mix = Mix{Streams: 1}
			options.URL = meddler{meet: func(r *http.Request, _ []byte) {
				if resume(r) {
					panic(http.ErrAbortHandler)
				}
			}}.start(t)
			report := until(t, options, func(r *Report) bool { return len(r.Of(Abandoned)) > 4 })
			expectQuirk(t, report, "gave up a stream because it had ended", Abandoned)
		})
		t.Run(string(name)+" is refused", func(t *testing.T) {
			options.Mix = Mix{Streams: 1}
			options.URL = meddler{turn: func(r *http.Response, body []byte) ([]byte, error) {
				if resume(r.Request) {
					r.StatusCode, r.Status = http.StatusServiceUnavailable, "503 Service Unavailable"
				}
				return body, nil
			}}.start(t)
			report := until(t, options, func(r *Report) bool { return len(r.Of(Broken)) > 4 })
			expectQuirk(t, report, "gave up the stream of a call", Broken)
		})
	}
}
