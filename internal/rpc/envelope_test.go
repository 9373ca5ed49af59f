package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seen is an envelope with its ranges as text.
type seen struct {
	Kind                                        Kind
	ID, Method, Params, Result, Error           string
	ProgressToken, ProtocolVersion, Name, URI   string
	RequestID, RequestedVersion, SubscriptionID string
}

func see(message []byte, e Envelope) seen {
	return seen{
		Kind: e.Kind, ID: string(e.ID.Of(message)), Method: string(e.Method), Params: string(e.Params.Of(message)),
		Result: string(e.Result.Of(message)), Error: string(e.Error.Of(message)),
		ProgressToken: string(e.ProgressToken.Of(message)), ProtocolVersion: string(e.ProtocolVersion),
		Name: string(e.Name), URI: string(e.URI), RequestID: string(e.RequestID.Of(message)),
		RequestedVersion: string(e.RequestedVersion), SubscriptionID: string(e.SubscriptionID.Of(message)),
	}
}

func TestScan(t *testing.T) {
	for name, test := range map[string]struct {
		message string
		want    seen
	}{
		"request": {
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"id":7,"method":"x"},"_meta":{"progressToken":"t"}}}`,
			seen{Kind: Request, ID: "1", Method: "tools/call", Name: "echo", ProgressToken: `"t"`,
				Params: `{"name":"echo","arguments":{"id":7,"method":"x"},"_meta":{"progressToken":"t"}}`},
		},
		"members in any order": {
			`{"params":{"uri":"a://b"},"method":"resources/read","id":"x","jsonrpc":"2.0"}`,
			seen{Kind: Request, ID: `"x"`, Method: "resources/read", URI: "a://b", Params: `{"uri":"a://b"}`},
		},
		"J-02 id keeps its type and spelling": {
			`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`,
			seen{Kind: Request, ID: "9007199254740993", Method: "ping"},
		},
		"notification": {
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":3,"progress":1}}`,
			seen{Kind: Notification, Method: "notifications/progress", ProgressToken: "3", Params: `{"progressToken":3,"progress":1}`},
		},
		"cancellation": {
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"r"}}`,
			seen{Kind: Notification, Method: "notifications/cancelled", RequestID: `"a"`, Params: `{"requestId":"a","reason":"r"}`},
		},
		"initialize": {
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`,
			seen{Kind: Request, ID: "0", Method: "initialize", RequestedVersion: "2025-11-25", Params: `{"protocolVersion":"2025-11-25","capabilities":{}}`},
		},
		"L-20 enveloped request": {
			`{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/subscriptionId":5}}}`,
			seen{Kind: Request, ID: "0", Method: "tools/list", ProtocolVersion: "2026-07-28", SubscriptionID: "5",
				Params: `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/subscriptionId":5}}`},
		},
		"result":           {`{"jsonrpc":"2.0","id":1,"result":null}`, seen{Kind: Response, ID: "1", Result: "null"}},
		"error":            {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, seen{Kind: Response, ID: "1", Error: `{"code":1,"message":"m"}`}},
		"J-13 error null":  {`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, seen{Kind: Response, Error: `{"code":1,"message":"m"}`}},
		"escaped slash":    {`{"jsonrpc":"2.0","id":1,"method":"tools\/list"}`, seen{Kind: Request, ID: "1", Method: "tools/list"}},
		"unknown members":  {`{"jsonrpc":"2.0","x":[{}],"method":"m","y":""}`, seen{Kind: Notification, Method: "m"}},
		"name not a text":  {`{"jsonrpc":"2.0","method":"m","params":{"name":{}}}`, seen{Kind: Notification, Method: "m", Params: `{"name":{}}`}},
		"R43 odd spaces":   {"{\"jsonrpc\":\"2.0\",\"method\":\"a\u00a0b\u3000c\u200d\"}", seen{Kind: Notification, Method: "a\u00a0b\u3000c\u200d"}},
		"deepest that may": {`{"jsonrpc":"2.0","method":"m","x":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`, seen{Kind: Notification, Method: "m"}},
	} {
		t.Run(name, func(t *testing.T) {
			message := []byte(test.message)
			envelope, err := Scan(message)
			if err != nil {
				t.Fatalf("Scan: %v", err)
			}
			if diff := cmp.Diff(test.want, see(message, envelope)); diff != "" {
				t.Errorf("envelope (-want +got):\n%s", diff)
			}
			if string(message) != test.message {
				t.Errorf("message was changed to %q", message)
			}
		})
	}
}

func TestScanRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		message string
		code    int
	}{
		"a state twice":                      {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"requestState":"a","requestState":"b"}}`, CodeInvalidRequest},
		"a state with an escape":             {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"request\u0053tate":"b"}}`, CodeInvalidRequest},
		"a task twice":                       {`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a","taskId":"b"}}`, CodeInvalidRequest},
		"a task with an escape":              {`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"task\u0049d":"b"}}`, CodeInvalidRequest},
		"a task in other letters":            {`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskID":"b"}}`, CodeInvalidRequest},
		"nothing":                            {"", CodeParse},
		"cut off":                            {`{"jsonrpc":"2.0","id":1`, CodeParse},
		"two values":                         {`{"jsonrpc":"2.0","method":"m"}{}`, CodeParse},
		"trailing comma":                     {`{"jsonrpc":"2.0","method":"m",}`, CodeParse},
		"trailing comma inside":              {`{"jsonrpc":"2.0","method":"m","x":[1,]}`, CodeParse},
		"mismatched brackets":                {`{"jsonrpc":"2.0","method":"m","x":[}]}`, CodeParse},
		"leading zero":                       {`{"jsonrpc":"2.0","id":01,"method":"m"}`, CodeParse},
		"bare minus":                         {`{"jsonrpc":"2.0","id":-,"method":"m"}`, CodeParse},
		"no digits after the point":          {`{"jsonrpc":"2.0","method":"m","x":1.}`, CodeParse},
		"no digits in the exponent":          {`{"jsonrpc":"2.0","method":"m","x":1e+}`, CodeParse},
		"not a literal":                      {`{"jsonrpc":"2.0","method":"m","x":nul}`, CodeParse},
		"raw line break in a string":         {"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"x\":\"a\nb\"}", CodeParse},
		"NUL in a string":                    {"{\"jsonrpc\":\"2.0\",\"method\":\"a\x00\"}", CodeParse},
		"invalid UTF-8":                      {"{\"jsonrpc\":\"2.0\",\"method\":\"a\xff\"}", CodeParse},
		"byte order mark":                    {"\ufeff{\"jsonrpc\":\"2.0\",\"method\":\"m\"}", CodeParse},
		"unknown escape":                     {`{"jsonrpc":"2.0","method":"\x"}`, CodeParse},
		"short escape":                       {`{"jsonrpc":"2.0","method":"\u12"}`, CodeParse},
		"too deep":                           {`{"jsonrpc":"2.0","method":"m","x":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}`, CodeParse},
		"J-09 batch":                         {`[{"jsonrpc":"2.0","method":"m"}]`, CodeInvalidRequest},
		"a string":                           {`"x"`, CodeInvalidRequest},
		"an empty object":                    {`{}`, CodeInvalidRequest},
		"J-01 no version":                    {`{"method":"m"}`, CodeInvalidRequest},
		"J-01 other version":                 {`{"jsonrpc":"1.0","method":"m"}`, CodeInvalidRequest},
		"J-02 null id":                       {`{"jsonrpc":"2.0","id":null,"method":"m"}`, CodeInvalidRequest},
		"J-02 fractional id":                 {`{"jsonrpc":"2.0","id":1.5,"method":"m"}`, CodeInvalidRequest},
		"J-02 exponent id":                   {`{"jsonrpc":"2.0","id":1e3,"method":"m"}`, CodeInvalidRequest},
		"J-02 object id":                     {`{"jsonrpc":"2.0","id":{},"method":"m"}`, CodeInvalidRequest},
		"J-05 result and error":              {`{"jsonrpc":"2.0","id":1,"result":1,"error":{}}`, CodeInvalidRequest},
		"J-05 error is a text":               {`{"jsonrpc":"2.0","id":1,"error":"e"}`, CodeInvalidRequest},
		"J-05 result without id":             {`{"jsonrpc":"2.0","result":1}`, CodeInvalidRequest},
		"method and result":                  {`{"jsonrpc":"2.0","id":1,"method":"m","result":1}`, CodeInvalidRequest},
		"R45 empty method":                   {`{"jsonrpc":"2.0","id":1,"method":""}`, CodeInvalidRequest},
		"R45 method is a number":             {`{"jsonrpc":"2.0","id":1,"method":1}`, CodeInvalidRequest},
		"params is an array":                 {`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`, CodeInvalidRequest},
		"params is null":                     {`{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, CodeInvalidRequest},
		"_meta is a text":                    {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":""}}`, CodeInvalidRequest},
		"member twice":                       {`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, CodeInvalidRequest},
		"member twice in params":             {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","name":"b"}}`, CodeInvalidRequest},
		"member twice in _meta":              {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1,"progressToken":2}}}`, CodeInvalidRequest},
		"escaped member":                     {`{"jsonrpc":"2.0","\u0069d":1,"method":"m"}`, CodeInvalidRequest},
		"member in another case":             {`{"jsonrpc":"2.0","ID":1,"method":"m"}`, CodeInvalidRequest},
		"letter that has one case with i":    {`{"jsonrpc":"2.0","İd":1,"method":"m"}`, CodeInvalidRequest},
		"the other one":                      {`{"jsonrpc":"2.0","ıd":1,"method":"m"}`, CodeInvalidRequest},
		"half a pair in an id":               {`{"jsonrpc":"2.0","id":"\ud83d","method":"m"}`, CodeInvalidRequest},
		"half a pair in a method":            {`{"jsonrpc":"2.0","id":1,"method":"m\ude00"}`, CodeInvalidRequest},
		"half a pair in a name":              {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"\n\ud83d\u0041"}}`, CodeInvalidRequest},
		"a pair and a half in a token":       {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"\ud83d\ude00\ud83d"}}}`, CodeInvalidRequest},
		"member that only folds to the name": {`{"jsonrpc":"2.0","paramſ":1,"method":"m"}`, CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Scan([]byte(test.message))
			got, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("Scan: got %v, want an *Error", err)
			}
			if got.Code != test.code || got.Reason == "" {
				t.Errorf("Scan: got code %d (%s), want %d", got.Code, got.Reason, test.code)
			}
		})
	}
}

// A body may be pretty-printed; a server reads lines.
func TestScanMakesOneLine(t *testing.T) {
	message := []byte("\r\n{\n\t\"jsonrpc\": \"2.0\",\r\n\t\"method\": \"m\",\n\"x\":[\n1\n,\r2]\n}\n")
	if _, err := Scan(message); err != nil {
		t.Fatalf("Scan: %v", err)
	}
	want := "  { \t\"jsonrpc\": \"2.0\",  \t\"method\": \"m\", \"x\":[ 1 , 2] } "
	if string(message) != want {
		t.Errorf("got %q, want %q", message, want)
	}
}

func TestBatch(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		want []string
		code int
	}{
		"two":            {` [ {"a":1} , "x" ] `, []string{`{"a":1}`, `"x"`}, 0},
		"one":            {`[1]`, []string{"1"}, 0},
		"none":           {`[]`, nil, CodeInvalidRequest},
		"not an array":   {`{}`, nil, CodeInvalidRequest},
		"trailing comma": {`[1,]`, []string{"1"}, CodeParse},
		"no end":         {`[1`, []string{"1"}, CodeParse},
		"more behind":    {`[1]2`, []string{"1"}, CodeParse},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := Batch([]byte(test.body), func(message []byte) error {
				got = append(got, string(message))
				return nil
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("elements (-want +got):\n%s", diff)
			}
			code := 0
			if e, ok := errors.AsType[*Error](err); ok {
				code = e.Code
			}
			if code != test.code {
				t.Errorf("got %v, want code %d", err, test.code)
			}
		})
	}
}

func TestAppendEdited(t *testing.T) {
	message := []byte(`{"jsonrpc":"2.0","id":"abc","method":"m","params":{"_meta":{"progressToken":7}}}`)
	e, err := Scan(message)
	if err != nil {
		t.Fatalf("Scan: %v", err)
	}
	got := AppendEdited(nil, message, Edit{e.ID, []byte("12")}, Edit{e.ProgressToken, []byte(`"t12"`)})
	want := `{"jsonrpc":"2.0","id":12,"method":"m","params":{"_meta":{"progressToken":"t12"}}}`
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

var smallCall = []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` +
	strings.Repeat("hello world ", 12) + `"},"_meta":{"progressToken":17}}}`)

func TestScanDoesNotAllocate(t *testing.T) {
	if allocs := testing.AllocsPerRun(100, func() {
		if _, err := Scan(smallCall); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("Scan allocates %v times, want 0", allocs)
	}
}

func BenchmarkScan(b *testing.B) {
	for name, message := range map[string][]byte{
		"200B":         smallCall,
		"1MiB":         []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"` + strings.Repeat("hello world ", 1<<20/12) + `"}]}}`),
		"1MiB of code": []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"` + strings.Repeat(`\tfmt.Println(\"hello world\")\n`, 1<<20/32) + `"}]}}`),
		"1MiB of rows": []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[` + strings.Repeat(`{"name":"hello world","number":17},`, 1<<20/36) + `{}]}}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(message)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Scan(message); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Servers may write null for what they do not have; clients may not.
func TestScanLenient(t *testing.T) {
	for name, test := range map[string]struct {
		message string
		kind    Kind
		fails   bool
	}{
		"a result without an error":  {`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, Response, false},
		"an error without a result":  {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""},"result":null}`, Response, false},
		"no params":                  {`{"jsonrpc":"2.0","method":"m","params":null}`, Notification, false},
		"no meta":                    {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":null}}`, Request, false},
		"neither result nor error":   {`{"jsonrpc":"2.0","id":1,"result":null,"error":null}`, Response, false},
		"an error that is none":      {`{"jsonrpc":"2.0","id":1,"error":null}`, 0, true},
		"a result and an error both": {`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, 0, true},
		"params that are an array":   {`{"jsonrpc":"2.0","method":"m","params":[]}`, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			envelope, err := ScanLenient([]byte(test.message))
			if (err != nil) != test.fails || err == nil && envelope.Kind != test.kind {
				t.Errorf("got kind %d and %v", envelope.Kind, err)
			}
			if _, err := Scan([]byte(test.message)); err == nil {
				t.Error("a client may write that, too")
			}
		})
	}
}

// A member that some parser takes for a known one is refused, also where the known
// one stands beside it. GHSA-q382-vc8q-7jhj: one parser ignores NUL at the end of a name.
func TestNamesThatParsersTakeForKnownOnes(t *testing.T) {
	const message = `{"jsonrpc":"2.0","id":1,"method":"tools/call"%s,"params":{"name":"ok"%s,"_meta":{"progressToken":1%s}}}`
	for _, name := range []string{"%s\\u0000", "\\u0000%s", "%s\\u0000\\u0000", "%s ", " %s", "%s\\t", "\\n%s", "%s\\u007f", "\\ufeff%s", "%s\\u200b", "%s\\u00a0", "\\u0085%s", "%s\u00a0"} {
		for place, known := range map[int]string{0: "method", 1: "name", 2: "progressToken"} {
			odd := [3]any{"", "", ""}
			odd[place] = `,"` + fmt.Sprintf(name, known) + `":"secret"`
			text := fmt.Sprintf(message, odd[:]...)
			if !json.Valid([]byte(text)) {
				t.Fatalf("%s is no JSON", text)
			}
			if _, err := Scan([]byte(text)); err == nil {
				t.Errorf("%s is taken", text)
			}
		}
	}
	for _, name := range []string{"na me", "n\\u0061med", "name2", "ünicode", "名前", "\\u0000", " ", ""} {
		if _, err := Scan(fmt.Appendf(nil, message, "", `,"`+name+`":1`, "")); err != nil {
			t.Errorf("%s is refused: %v", name, err)
		}
	}
}
