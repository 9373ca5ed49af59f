package main

import (
	"strings"
	"testing"
)

func TestFit(t *testing.T) {
	crd := "size: {pattern: '" + loose + "'}\nproperties:\n  emptyDir: {}\n  hostPath: {}\n  " + strings.Join(plugins, ": {}\n  ") + ": {}\n"
	fitted, err := fit([]byte(crd))
	if got := string(fitted); err != nil || !strings.Contains(got, tight) || strings.Contains(got, "rbd") || !strings.Contains(got, "hostPath") {
		t.Errorf("%v:\n%s", err, got)
	}
	for name, other := range map[string]string{
		"no quantity":         strings.Replace(crd, loose, "a+", 1),
		"a plugin is missing": strings.Replace(crd, "  rbd: {}\n", "", 1),
		"it is fitted":        string(fitted),
	} {
		if _, err := fit([]byte(other)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
