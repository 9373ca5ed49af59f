package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/registry"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// Which servers wait for a registry that does not answer, and for how long.
func TestWaitForARegistry(t *testing.T) {
	const forever = -1
	for name, test := range map[string]struct {
		transport mcpv1alpha1.TransportType
		command   []string
		want      time.Duration
	}{
		"stdio with a command": {mcpv1alpha1.TransportStdio, []string{"/server"}, 0},
		"HTTP with a command":  {mcpv1alpha1.TransportStreamableHTTP, []string{"/server"}, 0},
		"HTTP":                 {mcpv1alpha1.TransportStreamableHTTP, nil, imagePatience},
		"SSE":                  {mcpv1alpha1.TransportSSE, nil, imagePatience},
		"stdio":                {mcpv1alpha1.TransportStdio, nil, forever},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				r := New(Options{Images: resolverFunc(func(ctx context.Context, _ ImageRequest) (registry.Image, error) {
					asked.Add(1)
					<-ctx.Done()
					return registry.Image{}, ctx.Err()
				})})
				ctx, end := context.WithCancel(t.Context())
				defer end()
				r.images.start(ctx, r.Notify)
				server := &mcpv1alpha1.MCPServer{}
				server.Namespace, server.Name = someServer.Namespace, someServer.Name
				server.Spec.Image, server.Spec.Command, server.Spec.Transport.Type = "registry.example/image", test.command, test.transport
				inputs := workload.InputsOf(server, "")
				begin := time.Now()
				for looks := 1; ; looks++ {
					s := newState(server, time.Now())
					_, ok := r.imageFor(s, inputs)
					if waited := time.Since(begin); ok && waited != test.want {
						t.Errorf("waited for %s, want %s", waited, test.want)
					}
					if ok {
						break
					}
					if !s.undecided || s.waiting == nil || looks > 3 {
						t.Fatalf("look %d: %+v", looks, s)
					}
					if s.requeueAfter == 0 { // the answer wakes it
						if test.want != forever {
							t.Error("it waits without end")
						}
						break
					}
					time.Sleep(s.requeueAfter)
				}
				synctest.Wait()
				if isAsked := asked.Load() > 0; isAsked != (test.want != 0) {
					t.Errorf("the registry was asked %d times", asked.Load())
				}
			})
		})
	}
}
