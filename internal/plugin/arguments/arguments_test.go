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

// composedSchema is what generators of schemas make of types that have names, parents or no value.
const composedSchema = `{
  "type": "object",
  "$defs": {
    "Size": {"type": "integer"}, "Level": {"enum": ["low", "high"], "type": "string"}, "a/b": {"type": "boolean"},
    "Alias": {"$ref": "#/$defs/Size"}, "Loop": {"$ref": "#/$defs/Loop"}, "Tree": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "integer"}]},
    "Wide": {"anyOf": [{"$ref": "#/$defs/Wide"}, {"$ref": "#/$defs/Wide"}, {"$ref": "#/$defs/Wide"}, {"$ref": "#/$defs/Wide"}]}
  },
  "definitions": {"Old": {"type": "number"}},
  "properties": {
    "size": {"$ref": "#/$defs/Size"}, "alias": {"$ref": "#/$defs/Alias"}, "old": {"$ref": "#/definitions/Old"}, "odd": {"$ref": "#/$defs/a~1b"},
    "level": {"anyOf": [{"$ref": "#/$defs/Level"}, {"type": "null"}]}, "maybe": {"oneOf": [{"type": "string"}, {"type": "null"}]},
    "nullable": {"type": ["string", "null"]}, "count": {"type": ["integer", "null"]}, "both": {"allOf": [{"$ref": "#/$defs/Size"}, {"description": "x"}]},
    "narrow": {"type": "number", "allOf": [{"type": ["integer", "string"]}]}, "never": {"allOf": [{"type": "integer"}, {"type": "boolean"}]},
    "fixed": {"const": "on"}, "titled": {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
    "loop": {"$ref": "#/$defs/Loop"}, "tree": {"$ref": "#/$defs/Tree"}, "wide": {"$ref": "#/$defs/Wide"}, "absent": {"$ref": "#/$defs/Absent"},
    "elsewhere": {"$ref": "https://example.com/schema.json"}, "whole": {"$ref": "#"}, "open": true
  }
}`

// rootSchema has its arguments not where they mostly are.
const rootSchema = `{
  "$ref": "#/$defs/Args", "required": ["id"],
  "allOf": [{"properties": {"id": {"type": "integer"}, "both": {"type": "number"}}}, {"properties": {"both": {"type": ["integer", "boolean"]}}}],
  "$defs": {"Args": {"type": "object", "additionalProperties": false, "required": ["name"], "properties": {"name": {"type": "string"}}}},
  "anyOf": [{"required": ["force"], "properties": {"force": {"type": "boolean"}, "by": {"type": "integer"}}}, {"properties": {"by": {"type": "boolean"}}}]
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
		"a broken schema":     {`{"properties": 1}`, nil, "", "read the tool's schema: its properties are no object"},
		"no JSON":             {`{`, nil, "", "read the tool's schema: unexpected end of JSON input"},

		"a reference":                    {composedSchema, []string{"size=5"}, `{"size":5}`, ""},
		"a reference, wrong":             {composedSchema, []string{"size=five"}, "", `argument size: "five" is no integer`},
		"a reference to a reference":     {composedSchema, []string{"alias=five"}, "", `argument alias: "five" is no integer`},
		"a reference to a definition":    {composedSchema, []string{"old=1.5"}, `{"old":1.5}`, ""},
		"a reference to it, wrong":       {composedSchema, []string{"old=x"}, "", `argument old: "x" is no number`},
		"a reference with escapes":       {composedSchema, []string{"odd=x"}, "", `argument odd: "x" is no boolean`},
		"a list or null":                 {composedSchema, []string{"level=high"}, `{"level":"high"}`, ""},
		"a list or null, as null":        {composedSchema, []string{"level=null"}, `{"level":null}`, ""},
		"a list or null, neither":        {composedSchema, []string{"level=medium"}, "", `argument level: "medium" is none of ["low","high"] and no null`},
		"a text or null":                 {composedSchema, []string{"maybe=5", "nullable=true"}, `{"maybe":"5","nullable":"true"}`, ""},
		"a text or null, as null":        {composedSchema, []string{"maybe=null", "nullable=null"}, `{"maybe":null,"nullable":null}`, ""},
		"a number or null":               {composedSchema, []string{"count=5"}, `{"count":5}`, ""},
		"a number or null, neither":      {composedSchema, []string{"count=x"}, "", `argument count: "x" is no integer or null`},
		"all of":                         {composedSchema, []string{"both=5"}, `{"both":5}`, ""},
		"all of, wrong":                  {composedSchema, []string{"both=x"}, "", `argument both: "x" is no integer`},
		"all of, narrower":               {composedSchema, []string{"narrow=1.5"}, "", `argument narrow: "1.5" is no integer`},
		"all of, which nothing can be":   {composedSchema, []string{"never=1"}, "", `argument never: "1" cannot be right: the tool's schema allows no value`},
		"one value":                      {composedSchema, []string{"fixed=on", "titled=g"}, `{"fixed":"on","titled":"g"}`, ""},
		"one value, wrong":               {composedSchema, []string{"titled=b"}, "", `argument titled: "b" is none of ["r","g"]`},
		"a reference to itself":          {composedSchema, []string{"loop=5"}, `{"loop":5}`, ""},
		"a cycle with a way out":         {composedSchema, []string{"tree=5"}, `{"tree":5}`, ""},
		"many cycles":                    {composedSchema, []string{"wide=x"}, `{"wide":"x"}`, ""},
		"a reference to nothing":         {composedSchema, []string{"absent=x"}, `{"absent":"x"}`, ""},
		"a reference to another schema":  {composedSchema, []string{"elsewhere=1"}, `{"elsewhere":1}`, ""},
		"a reference to the whole":       {composedSchema, []string{`whole={"size":1}`}, `{"whole":{"size":1}}`, ""},
		"a reference to it, no object":   {composedSchema, []string{"whole=1"}, "", `argument whole: "1" is no object`},
		"anything":                       {composedSchema, []string{"open=[1]"}, `{"open":[1]}`, ""},
		"a whole that is a reference":    {rootSchema, []string{"id=1", "name=2"}, `{"id":1,"name":"2"}`, ""},
		"a whole that is all of":         {rootSchema, []string{"id=x", "name=2"}, "", `argument id: "x" is no integer`},
		"a whole that is all of, narrow": {rootSchema, []string{"id=1", "name=2", "both=true"}, "", `argument both: "true" is no integer`},
		"a whole with alternatives":      {rootSchema, []string{"id=1", "name=2", "force=true", "by=false"}, `{"by":false,"force":true,"id":1,"name":"2"}`, ""},
		"a whole that lacks some":        {rootSchema, nil, "", "required arguments are missing: id, name"},
		"a whole that is closed":         {rootSchema, []string{"id=1", "name=2", "x=1"}, "", "the tool has no argument x: it takes both, by, force, id, name"},
		"a whole that is a cycle":        {`{"$ref":"#","properties":{"a":{"type":"integer"}}}`, []string{"a=1"}, `{"a":1}`, ""},
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

// Unknown reports a typo in the name of an optional argument, if the schema names any.
func TestUnknown(t *testing.T) {
	for schema, want := range map[string][]string{
		`{"properties":{"a":{},"b":{}}}`: {"bb", "c"},
		`{"properties":{}}`:              nil,
		`{}`:                             nil,
		``:                               nil,
		`{"$defs":{"x":{"properties":{"bb":{},"c":{},"a":{}}}},"$ref":"#/$defs/x"}`: nil,
	} {
		if diff := cmp.Diff(want, Unknown(json.RawMessage(schema), map[string]any{"a": 1, "c": 2, "bb": 3})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", schema, diff)
		}
	}
}
