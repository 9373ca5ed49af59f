package rpc

import "testing"

func TestSameID(t *testing.T) {
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"a number":            {`1`, `1`, true},
		"another number":      {`1`, `2`, false},
		"a text":              {`"a"`, `"a"`, true},
		"a text and a number": {`"1"`, `1`, false},
		"escaped once":        {`"caf\u00e9"`, `"café"`, true},
		"escaped twice":       {`"\u0061\/"`, `"a/"`, true},
		"escaped differently": {`"\u0022"`, `"\""`, true},
		"another text":        {`"\u0061"`, `"b"`, false},
		"a quote inside":      {`"\"a"`, `"a"`, false},
		"a text and none":     {`"a"`, ``, false},
		"none and a text":     {``, `"a"`, false},
		"none at all":         {``, ``, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := SameID([]byte(test.a), []byte(test.b)); got != test.want {
				t.Errorf("%s and %s: got %v", test.a, test.b, got)
			}
			if got := len(test.a)+len(test.b) > 0 && string(IDKey([]byte(test.a))) == string(IDKey([]byte(test.b))); got != test.want {
				t.Errorf("the keys of %s and %s are %s and %s", test.a, test.b, IDKey([]byte(test.a)), IDKey([]byte(test.b)))
			}
		})
	}
}

func TestPlainIDAllocatesNothing(t *testing.T) {
	id, calls := []byte(`"an id too long for Go to convert it on the stack"`), map[string]int{}
	if got := testing.AllocsPerRun(100, func() {
		if calls[string(IDKey(id))] != 0 || !SameID(id, id) {
			t.Error("the id is not itself")
		}
	}); got != 0 {
		t.Errorf("allocates %v times", got)
	}
}
