package arguments

import (
	"encoding/json"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// list writes a list of n elements, each made of its number.
func list(n int, format string) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = strings.ReplaceAll(format, "#", strconv.Itoa(i))
	}
	return strings.Join(elements, ",")
}

// refs writes references to the definition d.
func refs(n int) string { return list(n, `{"$ref":"~/d"}`) }

// A server cannot keep the command busy by a schema: each of these is small, and says the same things many
// times. The memory that Parse takes stands for its work: it does not depend on how busy the machine is.
func TestWorkIsBounded(t *testing.T) {
	const mostBytes, mostObjects = 64 << 20, 1_000_000
	for name, schema := range map[string]string{
		"values that do not end":      `{"d":{"enum":[` + list(2000, "#") + `]},"properties":{"x":{"allOf":[` + refs(200) + `]}}}`,
		"values within the bound":     `{"d":{"enum":[` + list(1000, "#") + `]},"properties":{"x":{"allOf":[` + refs(900) + `]}}}`,
		"values of many alternatives": `{"d":{"enum":[` + list(900, "#") + `]},"properties":{"x":{"anyOf":[` + refs(90) + `],"allOf":[` + refs(900) + `]}}}`,
		"two long lists":              `{"properties":{"x":{"enum":[` + list(4000, "#") + `],"allOf":[{"enum":[` + list(4000, "#") + `]}]}}}`,
		"one large value":             `{"d":{"enum":[1,[` + list(30000, "#") + `]]},"properties":{"x":{"allOf":[` + refs(900) + `]}}}`,
		"types many times":            `{"d":{"type":[` + list(20, `"integer"`) + `]},"properties":{"x":{"allOf":[` + refs(6) + `]}}}`,
		"types that do not end":       `{"d":{"type":["integer",` + list(3000, `"t#"`) + `]},"properties":{"x":{"allOf":[` + refs(900) + `]}}}`,
		"choices that do not end":     `{"d":{"anyOf":[` + list(9000, "1") + `]},"properties":{"x":{"allOf":[` + refs(900) + `]}}}`,
		"parts that do not end":       `{"d":{"allOf":[` + list(9000, "1") + `]},"properties":{"x":{"allOf":[` + refs(900) + `]}}}`,
		"properties many times":       `{"d":{"properties":{` + list(3000, `"p#":1`) + `}},"allOf":[` + refs(900) + `]}`,
		"requirements many times":     `{"d":{"required":[` + list(3000, `"x"`) + `]},"allOf":[` + refs(900) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			content := json.RawMessage(strings.ReplaceAll(schema, "~", "#"))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(content, []string{"x=1"})
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Error(err)
			}
			bytes, objects := after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
			if bytes > mostBytes || objects > mostObjects {
				t.Errorf("a schema of %d bytes takes %d bytes and %d objects, want at most %d and %d", len(content), bytes, objects, mostBytes, mostObjects)
			}
		})
	}
}

// Beyond the bounds of the work, an argument is still typed by what the command has read of its schema.
func TestBeyondTheBounds(t *testing.T) {
	for name, test := range map[string]struct{ schema, word, want, err string }{
		"more values than are compared": {`{"properties":{"x":{"type":"integer","enum":[` + list(2000, "#") + `]}}}`, "x=5000", `{"x":5000}`, ""},
		"of another type than those":    {`{"properties":{"x":{"type":"integer","enum":[` + list(2000, "#") + `]}}}`, "x=a", "", `argument x: "a" is no integer`},
		"as many as are compared":       {`{"properties":{"x":{"enum":[` + list(1000, "7") + `]}}}`, "x=5000", "", `argument x: "5000" is none of [` + list(1000, "7") + `]`},
		"more choices":                  {`{"properties":{"x":{"type":"string","anyOf":[` + list(200, `{"const":#}`) + `]}}}`, "x=5", `{"x":"5"}`, ""},
		"names that are not read":       {`{"additionalProperties":false,"d":{"properties":{` + list(3000, `"p#":1`) + `}},"allOf":[` + refs(900) + `,{"properties":{"x":{}}}]}`, "x=1", `{"x":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := Parse(json.RawMessage(strings.ReplaceAll(test.schema, "~", "#")), []string{test.word})
			if err != nil || test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("error %v, want %s", err, test.err)
				}
				return
			}
			if got, err := json.Marshal(values); err != nil || string(got) != test.want {
				t.Errorf("got %s, %v, want %s", got, err, test.want)
			}
		})
	}
}
