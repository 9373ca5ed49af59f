package arguments

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testSchema = `{
  "type": "object", "required": ["id"], "additionalProperties": false,
  "properties": {
    "id": {"type": "integer"}, "ratio": {"type": "number"}, "force": {"type": "boolean"}, "comment": {"type": "string"},
    "tags": {"type": "array"}, "filter": {"type": "object"}, "limit": {"type": ["string", "integer", "null"]}, "mode": {"type": "string", "enum": ["fast", "slow"]},
    "either": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}, "free": {}
  }
}`

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		schema string
		words  []string
		want   string // as JSON
		err    string
	}{
		"types": {
			testSchema, []string{"id=4711", "ratio=1.50", "force=true", "comment=true", `tags=["a",1]`, `filter={"a":null}`},
			`{"comment":"true","filter":{"a":null},"force":true,"id":4711,"ratio":1.50,"tags":["a",1]}`, "",
		},
		"every digit":         {testSchema, []string{"id=12345678901234567890123"}, `{"id":12345678901234567890123}`, ""},
		"an equals sign":      {testSchema, []string{"id=1", "comment=a=b="}, `{"comment":"a=b=","id":1}`, ""},
		"nothing":             {testSchema, []string{"id=1", "comment="}, `{"comment":"","id":1}`, ""},
		"several types":       {testSchema, []string{"id=1", "limit=5", "either=false"}, `{"either":false,"id":1,"limit":5}`, ""},
		"several, as a text":  {testSchema, []string{"id=1", "limit=five", "either=no"}, `{"either":"no","id":1,"limit":"five"}`, ""},
		"several, null":       {testSchema, []string{"id=1", "limit=null"}, `{"id":1,"limit":null}`, ""},
		"any type":            {testSchema, []string{"id=1", `free={"a":[1]}`}, `{"free":{"a":[1]},"id":1}`, ""},
		"any type, as a text": {testSchema, []string{"id=1", "free=hello world"}, `{"free":"hello world","id":1}`, ""},
		"one of a list":       {testSchema, []string{"id=1", "mode=fast"}, `{"id":1,"mode":"fast"}`, ""},
		"no schema":           {"", []string{"a=1", "b=x"}, `{"a":1,"b":"x"}`, ""},
		"not of the list":     {testSchema, []string{"id=1", "mode=medium"}, "", `argument mode: "medium" is none of ["fast","slow"]`},
		"no number":           {testSchema, []string{"id=many"}, "", "argument id: \"many\" is no integer"},
		"a fraction":          {testSchema, []string{"id=1.5"}, "", "argument id: \"1.5\" is no integer"},
		"more than a value":   {testSchema, []string{"id=1 2"}, "", "argument id: \"1 2\" is no integer"},
		"a bracket too many":  {testSchema, []string{"id=1]"}, "", "argument id: \"1]\" is no integer"},
		"unknown":             {testSchema, []string{"id=1", "x=1"}, "", "the tool has no argument x: it takes comment, either, filter, force, free, id, limit, mode, ratio, tags"},
		"twice":               {testSchema, []string{"id=1", "id=2"}, "", "argument id is there twice"},
		"no argument":         {testSchema, []string{"id=1", "close"}, "", `"close" is no argument: write it as name=value`},
		"missing":             {testSchema, nil, "", "required arguments are missing: id"},
		"no arguments at all": {`{"type":"object","additionalProperties":false}`, []string{"a=1"}, "", "the tool has no argument a: it takes none"},
		"a broken schema":     {`{"properties": 1}`, nil, "", "read the tool's schema: json: cannot unmarshal number into Go struct field schema.properties of type map[string]arguments.property"},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := Parse(json.RawMessage(test.schema), test.words)
			if err != nil || test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("error %v, want %s", err, test.err)
				}
				return
			}
			got, err := json.Marshal(values)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
