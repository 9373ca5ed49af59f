//go:build conformance

package eras

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// orderer speaks 2026-07-28 by hand, to say what no SDK would.
type orderer struct {
	*testing.T
	url string
}

// outcome is what a call came to.
type outcome struct {
	Result struct {
		ResultType    string         `json:"resultType"`
		RequestState  string         `json:"requestState"`
		InputRequests map[string]any `json:"inputRequests"`
		Content       []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Error struct {
		Code int `json:"code"`
	} `json:"error"`
}

// call calls a tool, with more params, as the user of the authorization.
func (o orderer) call(tool, arguments, more, authorization string) (got outcome) {
	o.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,%s"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`, tool, arguments, more)
	request, err := http.NewRequestWithContext(o.Context(), http.MethodPost, o.url, strings.NewReader(body))
	if err != nil {
		o.Fatal(err)
	}
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {authorization},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {tool},
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		o.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || json.Unmarshal(text, &got) != nil {
		o.Fatalf("%s: %s, %v", response.Status, text, err)
	}
	return got
}

// answered are params that answer a question.
func answered(state string) string {
	return fmt.Sprintf(`"inputResponses":{"r1":{"action":"accept","content":{"name":"Ada"}}},"requestState":%q,`, state)
}

// I-04: the state that a client carries from one round of a call to the next is good once,
// for the client that got it, for that call and for a limited time. The adapter refuses all
// other uses, and the tool runs once.
func TestStateIsGoodOnce(t *testing.T) {
	const mine, other = `{"key":"mine"}`, `{"key":"other"}`
	const her, his = "Bearer e30.eyJpc3MiOiJpIiwic3ViIjoiaGVyIn0.c2ln", "Bearer e30.eyJpc3MiOiJpIiwic3ViIjoiaGltIn0.c2ln" // of two subjects
	legacy := columns[0].withTranslation()                                                                                // so that the server has no states of its own
	legacy.flags = append([]string{"--answer-timeout", "3s", "--max-sessions", "2"}, legacy.flags...)
	o := orderer{t, legacy.start(t).http}
	refused := func(what, arguments, state, authorization string) {
		t.Helper()
		if got := o.call("order", arguments, answered(state), authorization); got.Error.Code != -32602 {
			t.Errorf("%s: got %+v, want -32602", what, got)
		}
	}
	ask := func() string {
		t.Helper()
		got := o.call("order", mine, "", her)
		if got.Result.ResultType != "input_required" || len(got.Result.InputRequests) != 1 {
			t.Fatalf("got %+v, want a question", got)
		}
		return got.Result.RequestState
	}
	state := ask()
	changed := []byte(state)
	changed[len(changed)/2] ^= 1
	refused("tampered", mine, string(changed), her)
	refused("foreign", mine, state, his)
	refused("foreign, of a token that says nothing", mine, state, "Bearer opaque")
	refused("of another call", other, state, her)
	if got := o.call("order", mine, answered(state), her); len(got.Result.Content) != 1 || got.Result.Content[0].Text != "ordered for Ada" {
		t.Errorf("after all that: got %+v", got)
	}
	refused("replayed", mine, state, her)

	// Both processes that she may have wait for her now, so that the next call waits for
	// the first of them to be given up.
	late := ask()
	ask()
	if got := o.call("echo", `{"text":"well"}`, "", her); got.Error.Code != 0 {
		t.Fatalf("no parked call was dropped: %+v", got)
	}
	refused("expired", mine, late, her)
	for key, want := range map[string]string{mine: "1", other: "0"} {
		count := strings.TrimSuffix(key, "}") + `,"event":"ordered"}`
		if got := o.call("count", count, "", her); len(got.Result.Content) != 1 || got.Result.Content[0].Text != want {
			t.Errorf("ordered for %s: %+v, want %s", key, got.Result, want)
		}
	}
}
