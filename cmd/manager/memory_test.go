package main

import (
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/config"
)

func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for name, test := range map[string]struct {
		value string
		want  int64
		err   string
	}{
		"of a container":  {value: "536870912", want: 348966085},
		"none":            {value: "0", want: math.MaxInt64},
		"not in a pod":    {value: "", want: math.MaxInt64},
		"not a number":    {value: "512Mi", want: math.MaxInt64, err: `SLIPWAY_MEMORY_LIMIT must be a number of bytes, not "512Mi"`},
		"less than there": {value: "-1", want: math.MaxInt64, err: "must be a number of bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			t.Setenv(config.MemoryLimitVariable, test.value)
			err := setMemoryLimit()
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if got := debug.SetMemoryLimit(-1); got != test.want {
				t.Errorf("the heap may have %d bytes, want %d", got, test.want)
			}
		})
	}
}
