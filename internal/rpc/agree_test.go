package rpc

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read is what Scan has read out of a message.
func read(message []byte, e Envelope) reading {
	got := reading{}
	for name, span := range map[string]Span{
		"id": e.ID, "result": e.Result, "error": e.Error, "requestId": e.RequestID, "subscriptionId": e.SubscriptionID,
	} {
		if span.Present() {
			got[name] = describe(span.Of(message))
		}
	}
	for name, text := range map[string][]byte{
		"method": e.Method, "name": e.Name, "uri": e.URI, "requestedVersion": e.RequestedVersion, "protocolVersion": e.ProtocolVersion,
	} {
		if text != nil {
			got[name] = "text:" + hex.EncodeToString(text)
		}
	}
	switch {
	case !e.ProgressToken.Present():
	case e.Kind == Request:
		got["metaToken"] = describe(e.ProgressToken.Of(message))
	default:
		got["paramToken"] = describe(e.ProgressToken.Of(message))
	}
	return got
}

// wanted is what is left of a parser's reading of a message of some kind: an envelope says
// nothing of what has no meaning there.
func wanted(read reading, kind Kind) reading {
	for _, name := range []string{"method", "name", "uri", "requestedVersion", "protocolVersion"} {
		if !strings.HasPrefix(read[name], "text:") {
			delete(read, name) // no server takes it for one
		}
	}
	if kind == Response && read["id"] == "null" {
		delete(read, "id")
	}
	if kind != Request {
		delete(read, "metaToken")
	}
	if kind != Notification {
		delete(read, "paramToken")
	}
	return read
}

// agree fails the test if the message is taken and a parser reads something else out of it
// than Scan does. It says whether the message is taken.
//
// Numbers are compared in the precision of the parser: that ids beyond 2^53 lose digits in
// JavaScript is known, and a matter between such a client and such a server.
func agree(tb testing.TB, with []parser, original []byte) bool {
	tb.Helper()
	message := bytes.Clone(original)
	envelope, err := Scan(message)
	if err != nil {
		return false
	}
	scanned := read(message, envelope)
	for _, parser := range with {
		theirs, err := parser.read(message) // as it is forwarded
		if err != nil {
			tb.Errorf("%s refuses %q: %v", parser.name, clip(message), err)
			continue
		}
		ours := scanned
		if parser.doubles {
			ours = reading{}
			for name, value := range scanned {
				ours[name] = asDouble(value)
			}
		}
		if diff := cmp.Diff(ours, wanted(theirs, envelope.Kind)); diff != "" {
			tb.Errorf("%s reads %q differently (-scanned +parsed):\n%s", parser.name, clip(message), diff)
		}
	}
	return true
}

func clip(text []byte) []byte { return text[:min(len(text), 1000)] }

const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ok","_meta":{"progressToken":1}}}`

// takenSeeds are odd, and no parser reads them in another way.
var takenSeeds = map[string]string{
	"a call":                   string(smallCall),
	"members in any order":     `{"params":{"uri":"a://b"},"method":"resources/read","id":"x","jsonrpc":"2.0"}`,
	"everything in params":     `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"n","uri":"u","requestId":2,"protocolVersion":"p","progressToken":3,"_meta":{"progressToken":4,"io.modelcontextprotocol/protocolVersion":"v","io.modelcontextprotocol/subscriptionId":5}}}`,
	"everything, notification": `{"jsonrpc":"2.0","method":"m","params":{"name":"n","uri":"u","requestId":2,"protocolVersion":"p","progressToken":3,"_meta":{"progressToken":4,"io.modelcontextprotocol/protocolVersion":"v","io.modelcontextprotocol/subscriptionId":5}}}`,
	"members of other kinds":   `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":{},"uri":1,"requestId":null,"protocolVersion":[],"_meta":{"progressToken":true,"io.modelcontextprotocol/protocolVersion":null,"io.modelcontextprotocol/subscriptionId":{}}}}`,
	"empty texts":              `{"jsonrpc":"2.0","id":"","method":"m","params":{"name":"","uri":""}}`,
	"result":                   `{"jsonrpc":"2.0","id":1,"result":{"a":[1,2.5e-3,true,null,"\ud83d\ude00"]}}`,
	"result null":              `{"jsonrpc":"2.0","id":1,"result":null}`,
	"error":                    `{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"m"}}`,
	"error about nothing":      `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`,
	"pretty":                   "\r\n{\n\t\"jsonrpc\": \"2.0\",\r\n\t\"method\": \"m\",\n\"params\":{\n\"name\"\n:\r\n\"x\"},\n\"x\":[\n1\n,\r2]\n}\n",
	"escapes in texts":         `{"jsonrpc":"2.0","id":"\u0061\/\n","method":"tools\/call","params":{"name":"\u00e9\"\\\b\f\n\r\t\/","uri":"\u0000"}}`,
	"paired surrogates":        `{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"\ud83d\ude00","params":{"name":"a\uD83D\uDE00b","uri":"😀"}}`,
	"lone surrogate elsewhere": `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"n","arguments":{"\ud800":"\udc00"}}}`,
	"lone surrogate in a name": `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"n","name\ud800":"secret"}}`,
	"replacement character":    `{"jsonrpc":"2.0","id":"\ufffd","method":"m\ufffd","params":{"name":"�"}}`,
	"odd spaces":               "{\"jsonrpc\":\"2.0\",\"method\":\"a\u00a0b\u3000c\u200d\u2028\u2029\ufeff\"}",
	"noncharacters":            "{\"jsonrpc\":\"2.0\",\"method\":\"\uffff\U0010ffff\u007f\"}",
	"id 2^53+1":                `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`,
	"id -0":                    `{"jsonrpc":"2.0","id":-0,"method":"ping"}`,
	"id beyond 64 bits":        `{"jsonrpc":"2.0","id":-123456789012345678901234567890,"method":"ping"}`,
	"id beyond a double":       `{"jsonrpc":"2.0","id":` + strings.Repeat("9", 400) + `,"method":"ping"}`,
	"big exponent elsewhere":   `{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":1e999,"y":-1E+400,"z":0e-9999,"progressToken":1e999}}`,
	"token with a fraction":    `{"jsonrpc":"2.0","method":"m","params":{"progressToken":1.0,"requestId":-0}}`,
	"__proto__":                `{"jsonrpc":"2.0","id":1,"method":"m","__proto__":{"method":"secret"},"params":{"__proto__":{"name":"secret","uri":"secret"},"_meta":{"__proto__":{"progressToken":2}}}}`,
	"constructor":              `{"jsonrpc":"2.0","id":1,"method":"m","params":{"constructor":{"name":"secret"},"toString":1,"hasOwnProperty":1}}`,
	"members in other objects": `{"jsonrpc":"2.0","id":1,"method":"m","name":"no","uri":"no","_meta":{"progressToken":9},"params":{"name":"ok","method":"no","id":7,"arguments":{"name":"no","NAME":"no","name":"no"}}}`,
	"params as a text in it":   `{"jsonrpc":"2.0","id":1,"method":"m","x":"\"params\":{\"name\":\"secret\"}","params":{"name":"ok"}}`,
	"unknown member twice":     `{"jsonrpc":"2.0","id":1,"method":"m","x":1,"x":2,"X":3}`,
	"no name of a member":      `{"jsonrpc":"2.0","id":1,"method":"m","":1,"\u0000":2," ":3,"params":{"":"secret","\u0000":"secret"}}`,
	"names that begin alike":   `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok","names":"no","nam":"no","ame":"no","na me":"no","na\u0020me":"no","_name":"no","uri2":"no"}}`,
	"name of 16 bytes":         `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok","name000000000000":"no","name0000000000000":"no"}}`,
	"a long name":              `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok","` + strings.Repeat("name", 100) + `":"no"}}`,
	"deep":                     `{"jsonrpc":"2.0","method":"m","x":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `,"params":{"y":` + strings.Repeat(`{"a":`, maxDepth-2) + "1" + strings.Repeat("}", maxDepth-2) + `}}`,
}

// refusedSeeds are what parsers disagree on, or refuse.
var refusedSeeds = map[string]string{
	"member twice":                `{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`,
	"member twice in params":      `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok","name":"secret"}}`,
	"params twice":                `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok"},"params":{"uri":"secret"}}`,
	"escaped member":              `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok","n\u0061me":"secret"}}`,
	"member in another case":      `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok","Name":"secret"}}`,
	"long s":                      `{"jsonrpc":"2.0","id":1,"method":"m","paramſ":{"name":"secret"}}`,
	"I with a dot":                `{"jsonrpc":"2.0","İd":1,"method":"m"}`,
	"i without a dot":             `{"jsonrpc":"2.0","id":1,"method":"m","params":{"uri":"ok","urı":"secret"}}`,
	"lone surrogate in a token":   `{"jsonrpc":"2.0","method":"m","params":{"progressToken":"\ud800"}}`,
	"lone surrogate, cancelled":   `{"jsonrpc":"2.0","method":"m","params":{"requestId":"\ud800"}}`,
	"Kelvin sign":                 `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToKen":1,"progressToken":2}}}`,
	"NUL after a name":            `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok","name\u0000":"secret"}}`,
	"NUL after a name, alone":     `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name\u0000":"secret"}}`,
	"blank after a name":          `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok","name ":"secret"}}`,
	"zero width space":            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"name\u200b\":\"secret\"}}",
	"lone surrogate in a method":  `{"jsonrpc":"2.0","id":1,"method":"m\ud800"}`,
	"lone surrogate in a tool":    `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a\ude00"}}`,
	"lone surrogate in a uri":     `{"jsonrpc":"2.0","id":1,"method":"m","params":{"uri":"\ud83d\u0041"}}`,
	"lone surrogate, a version":   `{"jsonrpc":"2.0","id":1,"method":"m","params":{"protocolVersion":"\ud83d\ud83d\ude00"}}`,
	"lone surrogate, its version": `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"\udfff"}}}`,
	"lone surrogate in an id":     `{"jsonrpc":"2.0","id":"\ud800","method":"m"}`,
	"surrogates in wrong order":   `{"jsonrpc":"2.0","id":1,"method":"\ude00\ud83d"}`,
	"raw surrogate":               "{\"jsonrpc\":\"2.0\",\"method\":\"m\xed\xa0\x80\"}",
	"invalid UTF-8":               "{\"jsonrpc\":\"2.0\",\"method\":\"a\xff\"}",
	"overlong NUL":                "{\"jsonrpc\":\"2.0\",\"method\":\"a\xc0\x80\"}",
	"control character":           "{\"jsonrpc\":\"2.0\",\"method\":\"a\x01\"}",
	"id 1.0":                      `{"jsonrpc":"2.0","id":1.0,"method":"m"}`,
	"id 1e0":                      `{"jsonrpc":"2.0","id":1e0,"method":"m"}`,
	"id 1e999":                    `{"jsonrpc":"2.0","id":1e999,"method":"m"}`,
	"id +1":                       `{"jsonrpc":"2.0","id":+1,"method":"m"}`,
	"id 0x1":                      `{"jsonrpc":"2.0","id":0x1,"method":"m"}`,
	"id NaN":                      `{"jsonrpc":"2.0","id":NaN,"method":"m"}`,
	"byte order mark":             "\ufeff{\"jsonrpc\":\"2.0\",\"method\":\"m\"}",
	"trailing garbage":            call + "x",
	"trailing NUL":                call + "\x00",
	"two messages":                call + call,
	"comment":                     `{"jsonrpc":"2.0",/**/"method":"m"}`,
	"single quotes":               `{'jsonrpc':'2.0','method':'m'}`,
	"trailing comma":              `{"jsonrpc":"2.0","method":"m",}`,
	"too deep":                    `{"jsonrpc":"2.0","method":"m","x":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}`,
	"vertical tab as a blank":     "{\"jsonrpc\":\"2.0\",\v\"method\":\"m\"}",
	"no-break space as a blank":   "{\"jsonrpc\":\"2.0\",\u00a0\"method\":\"m\"}",
}

// Whatever is taken, every parser that a server may use reads the same out of it.
func TestParsersAgree(t *testing.T) {
	all := parsers(t)
	for name, message := range takenSeeds {
		t.Run(name, func(t *testing.T) {
			if !agree(t, all, []byte(message)) {
				_, err := Scan([]byte(message))
				t.Errorf("%q is refused: %v", clip([]byte(message)), err)
			}
		})
	}
	for name, message := range refusedSeeds {
		t.Run(name, func(t *testing.T) {
			if agree(t, all, []byte(message)) {
				t.Errorf("%q is taken", message)
			}
		})
	}
}

// places are messages with room for one member more, beside what it may be taken for.
var places = []string{
	`{"jsonrpc":"2.0","id":1,"method":"m"%s}`,
	`{"jsonrpc":"2.0"%s,"method":"m"}`,
	`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok","uri":"ok"%s}}`,
	`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_":0%s,"_meta":{}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1%s}}}`,
}

// oddRunes are all of ASCII, whatever has case or is a blank or a variant of ASCII, and
// the likes of these.
func oddRunes() iter.Seq[rune] {
	return func(yield func(rune) bool) {
		for _, span := range [][2]rune{{0, 0x24ff}, {0x2c60, 0x2c7f}, {0x3000, 0x3000}, {0xa640, 0xa7ff}, {0xfe00, 0xffff}, {0x1d400, 0x1d7ff}, {0xe0000, 0xe01ff}} {
			for r := span[0]; r <= span[1]; r++ {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// No name of a member that is one rune away from a known one is both taken and read as the
// known one by some parser. All that are taken stand in one message, for speed.
func TestLongNamesOneRuneAway(t *testing.T) {
	all := parsers(t)
	for place, known := range map[string]string{
		`{"jsonrpc":"2.0","method":"m"%s}`:                                        "id",
		`{"jsonrpc":"2.0","id":1%s,"method":"m"}`:                                 "method",
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok"%s}}`:          "name",
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"ok"%s,"uri":""}}`: "uri",
	} {
		t.Run(known, func(t *testing.T) {
			var odd strings.Builder
			taken := 0
			for r := range oddRunes() {
				for i := range len(known) + 1 {
					names := []string{known[:i] + string(r) + known[i:]}
					if i < len(known) {
						names = append(names, known[:i]+string(r)+known[i+1:])
					}
					for _, name := range names {
						member := `,` + string(AppendString(nil, name)) + `:"secret"`
						if _, err := Scan(fmt.Appendf(nil, place, member)); err == nil && name != known {
							odd.WriteString(member)
							taken++
						}
					}
				}
			}
			if !agree(t, all, fmt.Appendf(nil, place, odd.String())) || taken < 50_000 {
				t.Errorf("%d names are taken one by one, but not together, or hardly any", taken)
			}
		})
	}
}

// FuzzParsersAgree holds the scanner against every parser.
func FuzzParsersAgree(f *testing.F) {
	for _, seeds := range []map[string]string{takenSeeds, refusedSeeds} {
		for _, message := range seeds {
			f.Add([]byte(message))
		}
	}
	all := parsers(f)
	f.Fuzz(func(t *testing.T, message []byte) { agree(t, all, message) })
}

// FuzzMembersAgree does the same with messages that have one odd member more.
func FuzzMembersAgree(f *testing.F) {
	for place := range places {
		for _, name := range []string{
			`method`, `ID`, `name\u0000`, `n\u0061me`, ` name`, `uri\t`, `_META`, `progre\u017ftoken`, `\u212a`, `\ud800name`, `İd`, `urı`, `__proto__`,
			`io.modelcontextprotocol/protocolVersion`, `io.modelcontextprotocol\/protocolVersion`,
		} {
			f.Add(uint8(place), name, `"secret"`)
			f.Add(uint8(place), name, `{"name":1}`)
		}
	}
	all := parsers(f)
	f.Fuzz(func(t *testing.T, place uint8, name, value string) {
		agree(t, all, fmt.Appendf(nil, places[int(place)%len(places)], `,"`+name+`":`+value))
	})
}
