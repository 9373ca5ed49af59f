package paramheader

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// safeInteger is the largest that all parsers read alike.
const safeInteger = 1<<53 - 1

// Value is an argument in the words of a header, before Encode. There are none for what
// is no string, integer or boolean (M-17).
func Value(argument json.RawMessage) (string, bool) {
	var value any
	if len(argument) == 0 || json.Unmarshal(argument, &value) != nil {
		return "", false
	}
	switch value := value.(type) {
	case string:
		return value, true
	case bool:
		return strconv.FormatBool(value), true
	case float64:
		if text := string(argument); !strings.ContainsAny(text, ".eE") {
			return text, true
		}
		return strconv.FormatFloat(value, 'f', -1, 64), value == math.Trunc(value) && math.Abs(value) <= safeInteger
	}
	return "", false
}

// Repeats says whether a header, after Decode, has the value of an argument. Numbers are
// compared as such, if all parsers read them alike (M-17).
func Repeats(header string, argument json.RawMessage) bool {
	var value any
	if json.Unmarshal(argument, &value) != nil {
		return false
	}
	switch value := value.(type) {
	case string:
		return header == value
	case bool:
		return header == strconv.FormatBool(value)
	case float64:
		if header == string(argument) {
			return true
		}
		number, err := strconv.ParseFloat(header, 64)
		return err == nil && number == value && math.Abs(number) <= safeInteger
	}
	return false
}

// The marks around Base64.
const begin, end = "=?base64?", "?="

// Encode is a text as it stands in a header that repeats something: as it is where that
// is safe (M-16).
func Encode(text string) string {
	unsafe := strings.Trim(text, " \t") != text ||
		strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) ||
		strings.HasPrefix(text, begin) && strings.HasSuffix(text, end)
	if !unsafe {
		return text
	}
	return begin + base64.StdEncoding.EncodeToString([]byte(text)) + end
}

// Decode is the text that a header's value stands for: itself, or what is encoded in it
// between both marks (M-15). It fails for bad Base64.
func Decode(value string) (string, bool) {
	encoded, begins := strings.CutPrefix(value, begin)
	encoded, ends := strings.CutSuffix(encoded, end)
	if !begins || !ends {
		return value, true
	}
	text, err := base64.StdEncoding.Strict().DecodeString(encoded)
	return string(text), err == nil
}
