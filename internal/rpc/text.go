package rpc

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is the content of a string that stands in a message, or nil for any other value.
func Text(message []byte, value Span) []byte {
	raw := value.Of(message)
	if len(raw) < len(`""`) || raw[0] != '"' {
		return nil
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	return unquote(raw)
}

// decodedBytes is the longest text that a scan decodes, which takes several copies of it. No
// budget counts them.
const decodedBytes = 64 << 10

func unquote(raw []byte) []byte {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil // the syntax was checked, so this does not happen
	}
	return []byte(text)
}

// hasLoneSurrogate says whether a value that was checked is a string with an escape for
// one half of a surrogate pair and not for the other.
func hasLoneSurrogate(raw []byte) bool {
	if raw[0] != '"' {
		return false
	}
	for {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 { // nearly always
			return false
		}
		unit := codeUnit(raw[at:])
		switch {
		case unit < 0:
			raw = raw[at+len(`\n`):]
		case !utf16.IsSurrogate(unit):
			raw = raw[at+len(`\u0000`):]
		case utf16.DecodeRune(unit, codeUnit(raw[at+len(`\u0000`):])) == utf8.RuneError:
			return true
		default:
			raw = raw[at+len(`\ud83d\ude00`):]
		}
	}
}

// codeUnit is what the escape at the start of the text stands for in UTF-16, or -1 if there
// is none that says so.
func codeUnit(text []byte) rune {
	if len(text) < len(`\u0000`) || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(text[2:len(`\u0000`)]), 16, 16)
	if err != nil {
		return -1 // the syntax was checked, so this does not happen
	}
	return rune(unit)
}
