package paramheader

import (
	"encoding/json"
	"testing"
)

// M-17: what an argument is in a header.
func TestValue(t *testing.T) {
	for argument, want := range map[string]string{
		`"x"`: "x", `""`: "", `"\u0061"`: "a", `true`: "true", `false`: "false", `-7`: "-7", `7.0`: "7", `1e3`: "1000",
		`9007199254740991.0`: "9007199254740991", `12345678901234567890`: "12345678901234567890",
		`9007199254740992.0`: "-", `1.5`: "-", `1e300`: "-", `1e999`: "-", `null`: "-", `[1]`: "-", `{}`: "-", ``: "-",
	} {
		got, ok := Value(json.RawMessage(argument))
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", argument, got, want)
		}
	}
}

func TestRepeats(t *testing.T) {
	for name, test := range map[string]struct {
		header, argument string
		want             bool
	}{
		"M-17 string":                {"eu", `"eu"`, true},
		"M-17 escapes":               {"eu", `"\u0065u"`, true},
		"M-17 empty":                 {"", `""`, true},
		"M-17 different":             {"us", `"eu"`, false},
		"M-14 another case":          {"EU", `"eu"`, false},
		"M-17 string, like a number": {"42.0", `"42"`, false},
		"M-17 integer":               {"42", `42`, true},
		"M-17 another spelling":      {"42.0", `42`, true},
		"M-17 the other way":         {"42", `42.0`, true},
		"M-17 another integer":       {"43", `42`, false},
		"M-17 no integer":            {"x", `42`, false},
		"M-17 infinite":              {"inf", `42`, false},
		"M-17 fraction":              {"1.5", `1.5`, true},
		"M-24 largest":               {"9007199254740991", `9007199254740991.0`, true},
		"M-24 too large":             {"9007199254740992", `9007199254740993`, false},
		"M-24 too small":             {"-9007199254740992", `-9007199254740993`, false},
		"M-24 large, and the same":   {"9007199254740993", `9007199254740993`, true},
		"M-17 boolean":               {"true", `true`, true},
		"M-17 another boolean":       {"true", `false`, false},
		"M-17 boolean, another case": {"True", `true`, false},
		"M-17 object":                {`{"a":1}`, `{"a":1}`, false},
		"M-17 array":                 {`[1]`, `[1]`, false},
		"M-17 null":                  {"null", `null`, false},
		"nothing":                    {"", ``, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Repeats(test.header, json.RawMessage(test.argument)); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// M-16: what a header may not have as it is.
func TestEncode(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "a b~!": "a b~!", "": "", "=?base64?": "=?base64?", "x=?base64?YQ==?=": "x=?base64?YQ==?=",
		" a": "=?base64?IGE=?=", "a\t": "=?base64?YQk=?=", "a\r\nb": "=?base64?YQ0KYg==?=", "ö": "=?base64?w7Y=?=", "\x7f": "=?base64?fw==?=",
		"=?base64?YQ==?=": "=?base64?PT9iYXNlNjQ/WVE9PT89?=", "=?base64?=": "=?base64?PT9iYXNlNjQ/PQ==?=",
	} {
		if got := Encode(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if got, ok := Decode(want); got != text || !ok {
			t.Errorf("%q: got %q and %t, want %q", want, got, ok, text)
		}
	}
}

// M-15: what a header's value stands for.
func TestDecode(t *testing.T) {
	for value, want := range map[string]string{
		"=?base64?R3LDvMOfZSA=?=": "Grüße ", "=?base64??=": "", "Grüße": "Grüße",
		"=?base64?YQ==": "=?base64?YQ==", "YQ==?=": "YQ==?=", "=?base64?=": "=?base64?=",
		"=?BASE64?YQ==?=": "=?BASE64?YQ==?=", "=?Base64?YQ==?=": "=?Base64?YQ==?=", "x=?base64?YQ==?=": "x=?base64?YQ==?=",
	} {
		if got, ok := Decode(value); got != want || !ok {
			t.Errorf("%q: got %q and %t, want %q", value, got, ok, want)
		}
	}
	for name, value := range map[string]string{
		"no Base64": "=?base64?!?=", "no padding": "=?base64?YQ?=", "more bits": "=?base64?YR==?=", "of URLs": "=?base64?_-__?=",
	} {
		if got, ok := Decode(value); ok {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// M-16, M-17: who compares takes what is sent.
func FuzzArgument(f *testing.F) {
	for _, argument := range []string{`"x"`, `" ü\n"`, `"=?base64?YQ==?="`, `true`, `-0.0`, `1e3`, `12345678901234567890`, `1.5`, `null`, `{"a":1}`} {
		f.Add([]byte(argument))
	}
	p := Param{Path: []string{"a"}}
	f.Fuzz(func(t *testing.T, text []byte) {
		arguments := append(append([]byte(`{"a":`), text...), '}')
		if !json.Valid(arguments) {
			return // it is no part of a message that was scanned
		}
		argument, err := p.Argument(arguments)
		if err != nil {
			return
		}
		value, ok := Value(argument)
		if !ok {
			return
		}
		header := Encode(value)
		for _, c := range []byte(header) {
			if c < ' ' || c > '~' {
				t.Fatalf("%s: the header is %q", argument, header)
			}
		}
		if got, ok := Decode(header); got != value || !ok || !Repeats(got, argument) {
			t.Errorf("%s: the header %q is %q", argument, header, got)
		}
	})
}
