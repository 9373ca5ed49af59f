package rpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzScan holds the scanner against encoding/json: what it takes is valid JSON
// with the same envelope, and what it refuses for its syntax is not valid JSON.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		string(smallCall),
		`{"jsonrpc":"2.0","id":"x","method":"tools\/call","params":{"name":"\u00e9","_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":[1,2.5e-3,true,null,"\ud83d\ude00"]}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`,
		"{\r\n\"jsonrpc\" : \"2.0\" ,\"method\":\"m\",\"params\":{}}",
		`{"jsonrpc":"2.0","ID":1,"method":"m"}`, `[1,[2,{"a":[]}]]`, `"\u12"`, "{\"a\":\"\xff\"}", `-0`, `1e`, `{`, `}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, original []byte) {
		message := bytes.Clone(original)
		envelope, err := Scan(message)
		if len(message) != len(original) || bytes.ContainsAny(message, "\r\n") && err == nil {
			t.Fatalf("a message that was taken has line breaks: %q", message)
		}
		valid := json.Valid(original) && utf8.Valid(original)
		if err != nil {
			refused := err.(*Error) //nolint:errorlint // Scan promises this very type.
			if refused.Code == CodeParse && valid && !strings.Contains(refused.Reason, "deep") {
				t.Fatalf("refused valid JSON %q: %v", original, err)
			}
			return
		}
		if !valid {
			t.Fatalf("took invalid JSON %q", original)
		}
		compareEnvelope(t, original, message, envelope)
	})
}

func compareEnvelope(t *testing.T, original, message []byte, envelope Envelope) {
	t.Helper()
	var want struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  *struct {
			Meta struct {
				ProgressToken json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(original, &want); err != nil {
		t.Fatalf("encoding/json refuses what was taken, %q: %v", original, err)
	}
	if want.JSONRPC != "2.0" {
		t.Fatalf("took version %q", want.JSONRPC)
	}
	if string(envelope.Method) != want.Method {
		t.Fatalf("method of %q: got %q, want %q", original, envelope.Method, want.Method)
	}
	if id := string(want.ID); id != "null" && string(envelope.ID.Of(message)) != id {
		t.Fatalf("id of %q: got %q, want %q", original, envelope.ID.Of(message), id)
	}
	if want.Params == nil {
		return
	}
	var token json.RawMessage
	switch envelope.Kind {
	case Notification:
		token = want.Params.ProgressToken
	case Request:
		token = want.Params.Meta.ProgressToken
	case Response:
	}
	if got := envelope.ProgressToken.Of(message); string(got) != string(token) && !bytes.ContainsAny(token, "\r\n") {
		t.Fatalf("progress token of %q: got %q, want %q", original, got, token)
	}
}

// FuzzBatch checks that the elements of a batch are exactly those that
// encoding/json finds.
func FuzzBatch(f *testing.F) {
	for _, seed := range []string{`[1,2]`, `[]`, ` [ {"a":[]} , "x" ] `, `[1,]`, `[`, `{}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var want []json.RawMessage
		valid := json.Unmarshal(body, &want) == nil && utf8.Valid(body) && len(want) > 0
		var got [][]byte
		err := Batch(bytes.Clone(body), func(element []byte) error {
			got = append(got, element)
			return nil
		})
		if err == nil && !valid {
			t.Fatalf("took %q", body)
		}
		if valid && err != nil && !strings.Contains(err.Error(), "deep") {
			t.Fatalf("refused %q: %v", body, err)
		}
		if valid && err == nil && len(got) != len(want) {
			t.Fatalf("%q: got %d elements, want %d", body, len(got), len(want))
		}
	})
}
