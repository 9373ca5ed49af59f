package rpc

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/slipway-mcp/slipway/internal/rpc/parserstest"
)

// reading is what a parser reads out of a message: of each member what kind of value it has,
// and which. A member that it does not find is not there.
//
//	text:HEX    a string, in UTF-8; a surrogate without its other half as if it were a rune
//	number:TEXT a number in the message's spelling
//	double:HEX  a number, as the bits of a double
//	null, other
type reading map[string]string

// parser is something that servers read messages with.
type parser struct {
	name    string
	doubles bool // numbers are no more than doubles to it
	read    func(message []byte) (reading, error)
}

// parsers are all that can run here.
func parsers(tb testing.TB) []parser {
	tb.Helper()
	segmentio, node := parserstest.Start(tb, "testdata")
	all := []parser{
		{name: "encoding/json", read: readWithStandardLibrary},
		{name: "segmentio/encoding", read: func(message []byte) (reading, error) { return inUTF8(segmentio("i", message)) }},
		{name: "segmentio/encoding with exact names", read: func(message []byte) (reading, error) { return inUTF8(segmentio("c", message)) }},
	}
	if node != nil {
		all = append(all, parser{name: "JSON.parse", doubles: true, read: func(message []byte) (reading, error) { return inUTF8(node("", message)) }})
	}
	return all
}

// inUTF8 returns the answer of a parser with all texts in UTF-8.
func inUTF8(read reading, err error) (reading, error) {
	for name, value := range read {
		code, ok := strings.CutPrefix(value, "utf16:")
		if !ok {
			continue
		}
		units, err := hex.DecodeString(code)
		if err != nil {
			return nil, err
		}
		read[name] = "text:" + hex.EncodeToString(fromUTF16(units))
	}
	return read, err
}

// fromUTF16 is a text in UTF-8. Unlike the standard library's it keeps surrogates without
// their other halves apart from each other.
func fromUTF16(units []byte) []byte {
	var text []byte
	for len(units) >= 2 {
		r := rune(binary.BigEndian.Uint16(units))
		units = units[2:]
		if utf16.IsSurrogate(r) && len(units) >= 2 {
			if pair := utf16.DecodeRune(r, rune(binary.BigEndian.Uint16(units))); pair != utf8.RuneError {
				r, units = pair, units[2:]
			}
		}
		if utf16.IsSurrogate(r) {
			text = append(text, byte(0xe0|r>>12), byte(0x80|r>>6&0x3f), byte(0x80|r&0x3f))
			continue
		}
		text = utf8.AppendRune(text, r)
	}
	return text
}

// readWithStandardLibrary reads as most servers in Go do, which ignores case.
func readWithStandardLibrary(message []byte) (reading, error) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Params struct {
			Meta struct {
				ProgressToken   json.RawMessage `json:"progressToken"`
				ProtocolVersion json.RawMessage `json:"io.modelcontextprotocol/protocolVersion"`
				SubscriptionID  json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
			} `json:"_meta"`
			ProgressToken    json.RawMessage `json:"progressToken"`
			Name             json.RawMessage `json:"name"`
			URI              json.RawMessage `json:"uri"`
			RequestID        json.RawMessage `json:"requestId"`
			RequestedVersion json.RawMessage `json:"protocolVersion"`
		} `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return nil, err
	}
	read := reading{}
	for name, value := range map[string]json.RawMessage{
		"id": m.ID, "method": m.Method, "result": m.Result, "error": m.Error,
		"name": m.Params.Name, "uri": m.Params.URI, "requestId": m.Params.RequestID,
		"requestedVersion": m.Params.RequestedVersion, "paramToken": m.Params.ProgressToken,
		"metaToken": m.Params.Meta.ProgressToken, "protocolVersion": m.Params.Meta.ProtocolVersion,
		"subscriptionId": m.Params.Meta.SubscriptionID,
	} {
		if value != nil {
			read[name] = describe(value)
		}
	}
	return read, nil
}

// describe says what a value is that is known to be valid.
func describe(value []byte) string {
	switch c := value[0]; {
	case c == '"':
		return "text:" + hex.EncodeToString(unquote(value))
	case c == '-' || '0' <= c && c <= '9':
		return "number:" + string(value)
	case c == 'n':
		return "null"
	default:
		return "other"
	}
}

// asDouble is what remains of a number in a double.
func asDouble(value string) string {
	spelled, ok := strings.CutPrefix(value, "number:")
	if !ok {
		return value
	}
	number, _ := strconv.ParseFloat(spelled, 64) // what is too large is infinite, as in JavaScript
	return "double:" + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, math.Float64bits(number)))
}
