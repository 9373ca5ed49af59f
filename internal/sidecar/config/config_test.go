package config

import (
	"strings"
	"testing"
	"time"
)

const mib = 1 << 20

// Messages that have no room are refused at the start, with what to set. The API server
// refuses the same ones.
func TestMessagesFitIntoTheBudget(t *testing.T) {
	for name, test := range map[string]struct {
		memory, body int64
		line         int
		fields       bool
		want         []string
	}{
		"defaults, in a pod":  {256 * mib, 32 * mib, 64 * mib, true, nil},
		"no limit":            {0, 1 << 32, 1 << 32, true, nil},
		"body that just fits": {256 * mib, 64 * mib, 1 * mib, false, nil},
		"body": {256*mib - 1, 64 * mib, 1 * mib, false, []string{
			"limit-body-bytes is 67108864, and with memory-limit 268435455 all messages together may have 134217727 bytes: raise memory-limit to 268435456, or lower limit-body-bytes",
		}},
		"line": {256*mib - 1, 1 * mib, 64 * mib, false, []string{
			"limit-line-bytes is 67108864, and with memory-limit 268435455 all messages together may have 134217727 bytes: raise memory-limit to 268435456, or lower limit-line-bytes",
		}},
		"both, in a pod": {64 * mib, 32 * mib, 64 * mib, true, []string{
			"spec.adapter.limits.body is 33554432, and with spec.adapter.resources.limits.memory 67108864 all messages together may have 33554432 bytes: raise spec.adapter.resources.limits.memory to 134217728, or lower spec.adapter.limits.body",
			"spec.adapter.limits.line is 67108864, and with spec.adapter.resources.limits.memory 67108864 all messages together may have 33554432 bytes: raise spec.adapter.resources.limits.memory to 268435456, or lower spec.adapter.limits.line",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Defaults()
			cfg.MemoryLimit, cfg.BodyBytes, cfg.LineBytes, cfg.Names.Fields = test.memory, test.body, test.line, test.fields
			got := ""
			if err := cfg.Validate(); err != nil {
				got = err.Error()
			}
			if want := strings.Join(test.want, "\n"); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
		})
	}
}

func TestBudget(t *testing.T) {
	for name, test := range map[string]struct {
		memory, body int64
		line         int
		want         int64
	}{
		"half of the limit":          {256 * mib, 32 * mib, 64 * mib, 128 * mib},
		"no limit":                   {0, 32 * mib, 64 * mib, 128 * mib},
		"no limit, small messages":   {0, mib, mib, 128 * mib},
		"no limit, and large bodies": {0, 512 * mib, 64 * mib, 1024 * mib},
		"no limit, and large lines":  {0, 32 * mib, 512 * mib, 1024 * mib},
	} {
		cfg := Config{MemoryLimit: test.memory, BodyBytes: test.body, LineBytes: test.line}
		if got := cfg.Budget(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestValidate(t *testing.T) {
	cfg := Defaults()
	if err := cfg.Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	// No memory limit is no reason to refuse a limit that an MCPServer may have.
	cfg.BodyBytes, cfg.LineBytes = 1<<30, 1<<30
	if err := cfg.Validate(); err != nil || cfg.Budget() < 2*cfg.BodyBytes {
		t.Errorf("the largest limits: %v, budget %d", err, cfg.Budget())
	}
	cfg.MemoryLimit = 1 << 28
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "raise memory-limit to 4294967296") {
		t.Errorf("a body that has no room: %v", err)
	}
	cfg.Origins.Origins = []string{"example.com"}
	cfg.MaxSessions, cfg.LineBytes, cfg.CallTimeout = 0, -1, -time.Second
	err := cfg.Validate()
	for _, want := range []string{"max-sessions is 0, want 1", "limit-line-bytes is -1", "call-timeout is -1s, want at least 1s", `allowed-origin "example.com" can never match`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
