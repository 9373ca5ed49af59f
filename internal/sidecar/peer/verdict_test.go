package peer

import (
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

func TestDecide(t *testing.T) {
	const short, long = deadAfter - time.Nanosecond, deadAfter
	const stuck = stuckAfter - time.Nanosecond
	for name, test := range map[string]struct {
		given knowledge
		want  verdict
	}{
		"nothing is known":                                {knowledge{}, try},
		"the pod answered before":                         {knowledge{contact: connected}, try},
		"listed, not tried":                               {knowledge{listing: roster.Listed}, try},
		"listed, answered before":                         {knowledge{listing: roster.Listed, contact: connected}, try},
		"listed, refuses":                                 {knowledge{listing: roster.Listed, contact: refused}, over},
		"listed, refuses, and the session comes back":     {knowledge{listing: roster.Listed, contact: refused, returns: true}, wait},
		"listed, but another pod has the address":         {knowledge{listing: roster.Listed, contact: stranger}, over},
		"listed, unreachable":                             {knowledge{listing: roster.Listed, contact: unreachable, silence: short}, wait},
		"listed, unreachable for long":                    {knowledge{listing: roster.Listed, contact: unreachable, silence: 100 * long}, wait},
		"doubted, not tried":                              {knowledge{listing: roster.Doubted}, try},
		"doubted, unreachable":                            {knowledge{listing: roster.Doubted, contact: unreachable, silence: short}, wait},
		"doubted, unreachable for long":                   {knowledge{listing: roster.Doubted, contact: unreachable, silence: long}, over},
		"removed, not tried":                              {knowledge{listing: roster.Removed}, try},
		"removed, answered before":                        {knowledge{listing: roster.Removed, contact: connected}, try},
		"removed, unreachable":                            {knowledge{listing: roster.Removed, contact: unreachable}, over},
		"removed, and the session would have come back":   {knowledge{listing: roster.Removed, contact: refused, returns: true}, over},
		"unlisted, refuses":                               {knowledge{contact: refused}, over},
		"unlisted, refuses, and the session comes back":   {knowledge{contact: refused, returns: true, silence: long}, wait},
		"unlisted, refuses for long, would come back":     {knowledge{contact: refused, returns: true, silence: stuckAfter}, over},
		"doubted, refuses for long, will come back":       {knowledge{listing: roster.Doubted, contact: refused, returns: true, silence: stuckAfter}, wait},
		"unlisted, another pod has the address":           {knowledge{contact: stranger}, over},
		"unlisted, unreachable":                           {knowledge{contact: unreachable, silence: short}, wait},
		"unlisted, unreachable for long":                  {knowledge{contact: unreachable, silence: long}, over},
		"listed, takes no connection for long":            {knowledge{listing: roster.Listed, contact: unready, silence: stuckAfter}, wait},
		"unlisted, takes no connection":                   {knowledge{contact: unready, silence: stuck}, wait},
		"unlisted, takes no connection for very long":     {knowledge{contact: unready, silence: stuckAfter}, over},
		"unlisted, unreachable for long, would come back": {knowledge{contact: unreachable, silence: long, returns: true}, over},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide(test.given); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
