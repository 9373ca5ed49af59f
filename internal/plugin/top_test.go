package plugin

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// What takes less than a second is not commented on.
func TestTellProgress(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		want  string
	}{
		"less than a second": {999 * time.Millisecond, ""},
		"more":               {1001 * time.Millisecond, "Looking…\r\x1b[K"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _, errOut := typed("", table.Screen{})
				done := e.tellProgress(t.Context(), "Looking…")
				time.Sleep(test.takes)
				done()
				done() // twice does no harm
				if errOut.String() != test.want {
					t.Errorf("got %q, want %q", errOut, test.want)
				}
			})
		})
	}
}

// Numbers fit into columns, also those that only a pod that is no adapter claims.
func TestNumbersInTables(t *testing.T) {
	for name, test := range map[string]struct{ got, want string }{
		"nothing known":       {shown(nil, rate), "-"},
		"no calls":            {shown(new(0.0), rate), "0.0"},
		"a call in a while":   {rate(0.5), "0.5"},
		"many calls":          {rate(1234.5), "1234"},
		"an absurd number":    {rate(1e300), "1e+300"},
		"all failed":          {percent(1), "100%"},
		"some failed":         {percent(0.0125), "1.2%"},
		"fast":                {latency(0.0099), "10ms"},
		"slow":                {latency(2.44), "2.4s"},
		"very slow":           {latency(300), "300s"},
		"few bytes":           {size(100), "100"},
		"some bytes":          {size(2048), "2Ki"},
		"many bytes":          {size(1.5 * (1 << 30)), "1536.0Mi"},
		"more bytes than are": {size(1e300), "1e+300"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", name, test.got, test.want)
		}
	}
}

// What is not known is last, and what is equal is in the order of names.
func TestHighestFirst(t *testing.T) {
	for name, test := range map[string]struct {
		a, b *float64
		want int
	}{
		"the higher first":      {new(2.0), new(1.0), -1},
		"the lower last":        {new(1.0), new(2.0), 1},
		"equal":                 {new(1.0), new(1.0), 0},
		"known before unknown":  {new(0.0), nil, -1},
		"unknown after known":   {nil, new(0.0), 1},
		"neither of them known": {nil, nil, 0},
	} {
		if got := highestFirst(test.a, test.b); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
