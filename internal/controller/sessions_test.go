package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

// The status does not follow every session that comes and goes.
func TestWhenSessionsArePublished(t *testing.T) {
	for name, test := range map[string]struct {
		published *int32
		open      int64
		limit     int64
		after     time.Duration // since the last time
		want      int32
	}{
		"first":                  {nil, 3, 20, time.Hour, 3},
		"none yet":               {nil, 0, 20, time.Hour, 0},
		"the same":               {new(int32(3)), 3, 20, time.Hour, 3},
		"one more of few":        {new(int32(3)), 4, 20, time.Hour, 4},
		"one more of many":       {new(int32(100)), 101, 2000, time.Hour, 100},
		"a tenth more":           {new(int32(100)), 110, 2000, time.Hour, 110},
		"a tenth less":           {new(int32(100)), 90, 2000, time.Hour, 90},
		"less than a minute ago": {new(int32(3)), 9, 20, time.Second, 3},
		"the last has ended":     {new(int32(1)), 0, 2000, time.Hour, 0},
		"one of none":            {new(int32(0)), 1, 2000, time.Hour, 1},
		"all are taken":          {new(int32(99)), 100, 100, time.Hour, 100},
		"one is free again":      {new(int32(100)), 99, 100, time.Hour, 99},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				last := time.Now()
				time.Sleep(test.after)
				server := &mcpv1alpha1.MCPServer{}
				server.Namespace, server.Name = someServer.Namespace, someServer.Name
				server.Status.Sessions = test.published
				s := newState(server, time.Now())
				s.memory.sessionsAt = last
				s.results = map[types.UID]prober.Result{"a": {
					Report: &prober.Report{Ready: true}, Sessions: adapterapi.Sessions{Open: test.open, Limit: test.limit},
				}}
				if got := sessionsOf(s); got == nil || *got != test.want {
					t.Errorf("got %v, want %d", got, test.want)
				}
			})
		})
	}
}
