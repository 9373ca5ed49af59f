//go:build conformance

package swarm

import (
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
